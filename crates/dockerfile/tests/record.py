"""Records what `e2b-dockerfile-utils`, an independent port of BuildKit's parser, makes of many texts: `recorded.json`.

python3 record.py > recorded.json, with that package installed. The Rust tests compare themselves with the file.
"""

import itertools
import json
import random

from e2b_dockerfile_utils import PatternMatcher, ShellLex, parse_dockerfile_ast

DOCKERFILES = [
    "FROM debian:12\nRUN apt-get update && \\\n    apt-get install -y curl\n",
    "# syntax=docker/dockerfile:1\nFROM x AS build\nRUN make\n\nFROM y\nCOPY --from=build /a /b\n",
    "# escape=`\nFROM x\nRUN dir `\n  c:\\\nENV a=b`  c\n",
    "#escape = `\n# check=skip=all\nFROM x\nCOPY a`  b /c\n",
    "FROM x\nRUN a \\\n# comment\n  # another\n\n   b \\\n\n\n c\nRUN d",
    "FROM x\nENV A=1 B=\"two words\" C=three\\ words D='x\"y' E=\nENV OLD some value here\nENV Q=\"a\\\"b\" R='it'\"'\"'s'\n",
    "FROM x\nLABEL a=b \"c d\"=\"e f\"\nARG X\nARG Y=1 Z=\"a b\"\n",
    "FROM x\nRUN [\"a\", \"b c\"]\nCMD [\"x\"]\nENTRYPOINT [ \"y\" , \"z\" ]\nCMD []\nSHELL [\"/bin/bash\", \"-c\"]\nVOLUME [\"/a\"]\nVOLUME /a /b\n",
    "FROM x\nRUN [ -e /x ] && echo y\nRUN ['a']\nCMD [\"a\",]\n",
    "FROM x\nCOPY --chown=a:b --chmod=755 a b c/\nCOPY [\"a b\", \"c d/\"]\nCOPY \"a b\" 'c d' e\\ f /g/\nADD --checksum=sha256:1 http://h/x /y\n",
    "FROM x\nRUN --mount=type=cache,target=/x --network=none -- --echo a\nRUN --mount='type=bind,source=a b' c\n",
    "FROM x\nRUN <<EOF\na\nb\nEOF\nRUN <<-EOF\n\ta\n\t\tb\n\tEOF\nRUN <<'EOF' cat\n$x\nEOF\n",
    "FROM x\nRUN cat <<EOF > /a && cat <<\"B\" > /b\n1\nEOF\n2\nB\nRUN python3 - <<PY\nprint(1)\nPY\n",
    "FROM x\nCOPY <<a.txt <<-b.txt /d/\n1\na.txt\n\t2\n\tb.txt\nADD <<E /x\ny\nE\n",
    "FROM x\nRUN echo '<<EOF' \"<<EOF\" a<<b <<<c\nCMD cat <<EOF\nEXPOSE 80 443/tcp\n",
    "FROM x\nRUN <<EOF\nno end\n",
    "FROM x\nRUN 3<<EOF cat\n1\nEOF\n",
    "FROM x\nRUN a\\\\\nRUN b\\ \nc\nRUN d\\\n",
    "from x\nRun a\nCoPy a b\nworkdir /a b\nUSER a:b\nSTOPSIGNAL 9\nMAINTAINER a <b@c>\n",
    "   FROM x\n\tRUN a\n  # c\n RUN b\n",
    "FROM x\r\nRUN a \\\r\n  b\r\nCOPY <<E /x\r\nline\r\nE\r\n",
    "\ufeffFROM x\nRUN ü\n",
    "FROM x\nNOPE y\n", "FROM x\nENV a\n", "FROM x\nENV a=1 b\n", "FROM x\nRUN [1]\n", "# escape=x\nFROM y\n", "",
    "# only a comment", "FROM x\nENV\nARG\nLABEL\nRUN\nCOPY\nCMD\nUSER\nWORKDIR\n",
    "FROM x\nARG A=\"b\nRUN c\n", "FROM --platform=$B x AS y\n", "# a=b\n# escape=`\nFROM x\n", "# syntax=a\n# syntax=b\nFROM x\n",
    "FROM x\nRUN a \\\n", "FROM x\nRUN a \\\n\\\nb\n", "FROM x\nENV a='b \\\n c' d=e\n", "FROM x\nENV a=\\\n b\n",
]
PIECES = [
    "FROM x", "RUN ", "COPY ", "ENV ", "ARG ", "a", "b=c", "=", " ", "  ", "\t", "\\", "\\\n", "\n", "\n\n", "# c\n", "\"", "'", "[", "]", "\"a\"",
    ",", "--f=1 ", "-- ", "<<E", "<<-E", "\nE\n", "$x", "${y:-z}", "EXPOSE 1", "CMD ", "LABEL ", "WORKDIR /", "`", "\r\n",
]
WORDS = [
    "$A", "${A}", "${A:-x}", "${N:-x}", "${N-x}", "${E:-x}", "${E-x}", "${A:+x}", "${N+x}", "${E+x}", "${N:?}", "${E?}", "${N?why not}", "${A#v*}",
    "${A##*l}", "${A%e}", "${A%%a*}", "${P#*/}", "${P##*/}", "${P%/*}", "${P/b/x}", "${P//\\//_}", "${A/a/$B}", "\\$A", "'$A'", "\"$A\"", "\"\\$A\"",
    "\"\\a\"", "a\\ b", "'a b'", "\"a 'b' c\"", "$", "$$", "${", "${}", "${A", "${A:}", "${A^^}", "$1a", "$A_B", "${N:-${A}}", "${N:-'a b'}", "${N:-\"$A\"}",
    "<<E", "< <E", "<< E", "'", "\"", "a\\", "ü$A", "${A:-a\\}b}", "${P#\\*}", "${P%\\x}", "", " a  b ", "$A $N $E", "\"$L\" $L",
]
VARIABLES = {"A": "value", "B": "b", "E": "", "P": "/a/b/c", "L": "two words"}
PATTERNS = [
    "*", "**", "*.md", "!README.md", "docs", "docs/", "/docs", "docs/*", "docs/**", "**/docs", "!docs/keep", "a?c", "[a-c]x", "[^a]x", "a\\*b", "**/*.go",
    "**x", "a**/b", "src/**/test", "!**/keep", ".", "./a", "a/../b", "*/", " spaced ", "!", "[", "a[]b", "a.b", "a+b", "node_modules",
]
PATHS = [
    "README.md", "docs", "docs/keep", "docs/a/b", "a", "abc", "bx", "ax", "a*b", "main.go", "pkg/main.go", "xx", "a/b", "src/test", "src/a/test/b", "keep",
    "deep/er/keep", "b", "a.b", "axb", "a+b", "node_modules/x/index.js", "x/node_modules", "spaced", "docs2/a",
]


def dockerfile(text: str):
    try:
        ast = parse_dockerfile_ast(text)
    except ValueError:
        return None
    found = []
    for one in ast.instructions:
        found.append({
            "name": one.name, "flags": one.flags, "args": one.args, "json": one.json, "line": one.start_line, "end": one.end_line,
            "heredocs": [[doc.name, doc.content, doc.chomp, doc.expand] for doc in one.heredocs],
        })
    return {"escape": ast.escape_token, "instructions": found}


def word(text: str, keep: bool):
    lex = ShellLex("\\", env=VARIABLES, skip_unset_env=keep)
    try:
        return [lex.process_word(text), lex.process_words(text)]
    except ValueError:
        return None


def ignored(patterns: list[str]):
    try:
        matcher = PatternMatcher(patterns)
    except ValueError:
        return None
    return [path for path in PATHS if matcher.matches(path)]


def main() -> None:
    chance = random.Random(7)
    texts = DOCKERFILES + ["FROM x\n" + "".join(chance.choices(PIECES, k=chance.randint(1, 14))) for _ in range(600)]
    words = WORDS + ["".join(chance.choices(WORDS, k=3)) for _ in range(300)]
    sets = [[one] for one in PATTERNS] + [chance.sample(PATTERNS, k=chance.randint(2, 4)) for _ in range(200)]
    print(json.dumps({
        "dockerfiles": [[text, dockerfile(text)] for text in dict.fromkeys(texts)],
        "variables": VARIABLES,
        "words": [[text, keep, word(text, keep)] for text, keep in itertools.product(dict.fromkeys(words), [False, True])],
        "paths": PATHS,
        "ignored": [[patterns, ignored(patterns)] for patterns in sets],
    }, ensure_ascii=False, indent=0).replace("\n", ""))


main()
