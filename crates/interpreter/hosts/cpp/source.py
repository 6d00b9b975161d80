# Parses cells of C++: finds their declarations and statements, and turns each into what a library can hold. The next file
# of the host follows in the same program.
import re

TOKEN = re.compile(
    r"""
      (?P<text>(?:u8|[uUL])?R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)" | (?:u8|[uUL])?"(?:\\.|[^"\\\n])*" | (?:u8|[uUL])?'(?:\\.|[^'\\\n])+')
    | (?P<space>\s+ | //(?:\\\n|[^\n])* | /\*.*?\*/)
    | (?P<directive>(?<![^\n])[ \t]*\#(?:\\\n|[^\n])*)
    | (?P<word>[A-Za-z_$]\w*)
    | (?P<number>\.?\d(?:[eEpP][+-]|'?[\w.])*)
    | (?P<sign>::|->|<<|&&|\|\||\.\.\.|[<>=!+*/%&|^-]=|\+\+|--|.)
    """,
    re.S | re.M | re.X,
)
PAIRS = {"(": ")", "[": "]", "{": "}"}
CONTROL = {"if", "for", "while", "do", "switch", "try", "return", "throw", "goto", "break", "continue", "co_return", "co_yield", "asm", "__asm__"}
LOOSE = {"using", "typedef", "static_assert", "concept", "friend", "template", "_Static_assert"}
CLASSES = {"class", "struct", "union", "enum"}
SPECIFIERS = {"inline", "constexpr", "consteval", "constinit", "static", "thread_local", "const", "volatile", "auto", "typename", "extern", "register", "explicit", "virtual"}
BUILTIN = {"int", "long", "short", "unsigned", "signed", "char", "bool", "float", "double", "void", "wchar_t", "char8_t", "char16_t", "char32_t", "__int128"}
NEVER_A_TYPE = {"new", "delete", "sizeof", "this", "not", "true", "false", "nullptr", "co_await", "operator", "alignof", "typeid", "compl", "static_cast", "dynamic_cast", "const_cast", "reinterpret_cast", "and", "or", "xor", "bitand", "bitor"}


class Token:
    __slots__ = ("kind", "text", "start", "end")

    def __init__(self, match):
        self.kind, self.text, self.start, self.end = match.lastgroup, match.group(), match.start(), match.end()
        if self.kind == "mark":
            self.kind = "text"


class Part:
    """A declaration or a statement of a cell, with the lines of the cell it came from."""

    def __init__(self, kind, text, cell, line, start=0):
        #: One of `directive`, `declaration` (kept as it is), `definition` (of variables or a function), `statement`, `value`.
        self.kind, self.text, self.cell, self.line, self.start = kind, text, cell, line, start
        self.is_function, self.is_local, self.space, self.number = False, False, None, 0

    def source(self):
        text = self.shared()
        if self.space and self.kind != "directive":
            text = f"inline namespace {self.space} {{ {text}\n}}"
        return f"{self.place()}\n{text}\n"

    def shared(self):
        """The text in a form that several libraries may define."""
        if self.kind == "definition" and not self.is_local:
            return inline(self.text)
        if self.kind == "declaration" and re.match(r"(inline\s+)?namespace\b[^=;]*\{", self.text):
            return inner(self.text)
        return self.text

    def place(self):
        """The line directive that tells the compiler the origin. The number of the part is removed from messages."""
        return f'#line {self.line} "{name_of(self.cell)}#{self.number}"'


def name_of(cell):
    return f"cell {cell}"


def tokens_of(code):
    found = [Token(match) for match in TOKEN.finditer(code)]
    return [token for token in found if token.kind != "space"]


class Failure(Exception):
    def __init__(self, name, value, traceback=""):
        super().__init__(value)
        self.name, self.value, self.traceback = name, value, traceback


class Splitter:
    """Splits a cell into parts. Knows only as much of the grammar as that needs; the compiler checks the rest."""

    def __init__(self, code, cell):
        self.code, self.cell = code, cell
        self.tokens = tokens_of(code)

    def check(self):
        """Checks that brackets match. Otherwise the messages of the compiler about the rest would be misleading."""
        open_ones = []
        for token in self.tokens:
            if token.kind != "sign" or token.text not in "()[]{}":
                continue
            if token.text in PAIRS:
                open_ones.append(token)
            elif not open_ones or PAIRS[open_ones.pop().text] != token.text:
                self.fail(token, f"'{token.text}' closes nothing")
        for token in open_ones[-1:]:
            self.fail(token, f"'{token.text}' is not closed")

    def fail(self, token, problem):
        line = self.code.count("\n", 0, token.start) + 1
        raise Failure("CompileError", problem, f"{name_of(self.cell)}:{line}: error: {problem}\n")

    def text(self, at):
        return self.tokens[at].text if 0 <= at < len(self.tokens) else ""

    def kind(self, at):
        return self.tokens[at].kind if 0 <= at < len(self.tokens) else ""

    def match(self, at):
        """The position after the bracket that closes the one at `at`."""
        depth = 0
        while at < len(self.tokens):
            token = self.tokens[at]
            if token.kind == "sign":
                depth += (token.text in "([{") - (token.text in ")]}")
                if depth <= 0:
                    return at + 1
            at += 1
        return at

    def angles(self, at):
        """The position after the `>` that closes the `<` at `at`, or None if that is an operator."""
        depth = 0
        while at < len(self.tokens):
            text = self.text(at)
            if self.kind(at) == "sign":
                if text in PAIRS:
                    at = self.match(at)
                    continue
                if text in (";", "}", ")", "]", "&&", "||"):
                    return None
                depth += (text == "<") - (text == ">")
                if depth == 0:
                    return at + 1
            at += 1
        return None

    def parts(self):
        at, found = 0, []
        while at < len(self.tokens):
            start = at
            if self.text(at) == ";":
                at += 1
                continue
            if self.kind(at) == "directive":
                at = self.after_directive(at)
                found.append(self.part("directive", start, at))
                continue
            at, kind, is_function = self.after(at)
            part = self.part(kind, start, at)
            part.is_function = is_function
            # Structured bindings have no linkage, so no other library can use them.
            part.is_local = kind == "definition" and re.match(r"[\w\s&]*\bauto\b[\s&]*\[", part.text) is not None
            found.append(part)
        for number, part in enumerate(found):
            part.number = number
        return found

    def part(self, kind, start, end):
        first, last = self.tokens[start].start, self.tokens[end - 1].end
        return Part(kind, self.code[first:last], self.cell, 1 + self.code.count("\n", 0, first), first)

    def after_directive(self, at):
        depth = 0
        while at < len(self.tokens):
            if self.kind(at) == "directive":
                word = re.match(r"\s*#\s*(\w*)", self.text(at)).group(1)
                depth += word.startswith("if")
                depth -= word == "endif"
                if depth <= 0:
                    return at + 1
            at += 1
        return at

    def after(self, at):
        """The end of the part that begins at `at`, its kind, and whether it is the body of a function."""
        start = at
        while self.text(at) == "[" and self.text(at + 1) == "[":
            at = self.match(at)
        word = self.text(at)
        if word in CONTROL or word == "{":
            return self.after_statement(at), "statement", False
        if word == "namespace" or (word == "inline" and self.text(at + 1) == "namespace"):
            return self.after_namespace(at), "declaration", False
        if word == "extern" and self.kind(at + 1) == "text" and self.text(at + 2) == "{":
            return self.match(at + 2), "declaration", False
        declares = self.declares(at)
        is_loose = word in LOOSE
        has_class = has_body = had_parentheses = had_value = had_comma = had_colon = is_expression = False
        while at < len(self.tokens):
            text, kind = self.text(at), self.kind(at)
            if kind == "directive":
                at += 1
            elif text == "template" and self.text(at + 1) == "<":
                at = self.angles(at + 1) or at + 2
            elif text == "requires" and self.text(at + 1) in ("(", "{"):
                at = self.match(at + 1)
                at = self.match(at) if self.text(at) == "{" else at
            elif text in CLASSES and not had_parentheses:
                has_class, at = True, at + 1
            elif text == "operator" and kind == "word":
                # The name of an operator may be a bracket, or look like an end.
                at += 2
                at += 1 if self.text(at) in (")", "]") else 0
            elif text == "(":
                had_parentheses, at = True, self.match(at)
            elif text == "[":
                is_expression |= self.text(at - 1) in ("(", ",", "=", "<<", "&&", "||", "return", "") or at == start
                at = self.match(at)
            elif text == "{":
                opens = had_parentheses and not (had_value or is_expression or has_class)
                if had_colon:
                    opens = opens and self.text(at - 1) in (")", "}")
                elif had_comma:
                    opens = False
                at = self.match(at)
                if opens:
                    has_body = True
                    break
            elif text == ";":
                at += 1
                break
            else:
                had_value |= text == "=" and kind == "sign"
                had_comma |= text == "," and had_parentheses
                had_colon |= text == ":" and had_parentheses
                at += 1
        ended = self.text(at - 1) == ";"
        if is_loose:
            return at, "declaration", False
        if has_class and not had_parentheses and self.is_only_a_class(start, at):
            return at, "declaration", False
        if word == "extern" and not has_body and not had_value:
            return at, "declaration", False
        if has_body or declares == "yes" or (declares == "perhaps" and ended) or has_class:
            return at, "definition", has_body
        return at, "statement" if ended else "value", False

    def is_only_a_class(self, start, end):
        """Whether nothing is declared beside the class: its body, or its name, is the last before the semicolon."""
        last = end - 2 if self.text(end - 1) == ";" else end - 1
        if self.text(last) == "}":
            return True
        return not any(self.text(at) in ("{", "=", "(") for at in range(start, end)) and last - start <= 2

    def after_namespace(self, at):
        while at < len(self.tokens) and self.text(at) not in ("{", ";"):
            at += 1
        return self.match(at) if self.text(at) == "{" else min(at + 1, len(self.tokens))

    def after_statement(self, at):
        word = self.text(at)
        if word == "{":
            return self.match(at)
        if word in ("if", "for", "while", "switch"):
            at += 1
            if self.text(at) in ("constexpr", "consteval"):
                at += 1
            if self.text(at) == "(":
                at = self.match(at)
            at = self.after_statement(at)
            if word == "if" and self.text(at) == "else":
                at = self.after_statement(at + 1)
            return at
        if word == "do":
            at = self.after_statement(at + 1)
        elif word == "try":
            at = self.after_statement(at + 1)
            while self.text(at) == "catch":
                at = self.match(self.match(at + 1))
            return at
        while at < len(self.tokens):
            text = self.text(at)
            if text == ";":
                return at + 1
            at = self.match(at) if text in PAIRS and self.kind(at) == "sign" else at + 1
        return at

    def declares(self, at):
        """Whether the text at `at` looks like a declaration: `yes`, `no`, or `perhaps` for text such as `a * b`."""
        if self.text(at) in SPECIFIERS or self.text(at) == "alignas" or self.text(at) in CLASSES:
            return "yes"
        if self.text(at) in ("decltype", "__typeof__"):
            at = self.match(at + 1)
        elif self.text(at) in BUILTIN:
            return "no" if self.text(at + 1) in ("(", "{") else "yes"
        else:
            at += self.text(at) == "::"
            while True:
                if self.kind(at) != "word" or self.text(at) in NEVER_A_TYPE:
                    return "no"
                at += 1
                if self.text(at) == "<":
                    at = self.angles(at)
                    if at is None:
                        return "no"
                if self.text(at) != "::":
                    break
                at += 1
        points = False
        while self.text(at) in ("*", "&", "&&", "const", "volatile"):
            points |= self.text(at) != "const"
            at += 1
        if self.text(at) == "operator":
            return "yes"
        if self.kind(at) != "word" or self.text(at) in NEVER_A_TYPE:
            # Members that are defined outside of their class have no type before their name: constructors.
            return "no"
        while self.text(at + 1) == "::":
            at += 2
            at += self.text(at) == "~"
        if self.text(at) != "operator" and self.text(at + 1) not in ("=", "{", "(", "[", ";", ",", ":", ""):
            return "no"
        return "perhaps" if points and self.text(at + 1) != "=" else "yes"


def inline(text):
    """A definition that several libraries may contain and that is the same for all of them."""
    attributes = re.match(r"(\s*\[\[.*?\]\])*\s*", text, re.S).group()
    rest = text[len(attributes) :]
    words, place = [], 0
    while match := re.match(r"(static|inline|extern|constexpr|constinit|consteval|thread_local|const|volatile|register)\b\s*", rest[place:]):
        place += match.end()
        if match.group(1) not in ("static", "inline", "extern", "register"):
            words.append(match.group())
    return f"{attributes}inline {''.join(words)}{rest[place:]}"


def inner(text):
    """A namespace whose definitions several libraries may contain."""
    opening = text.index("{") + 1
    head, body = text[:opening], text[opening : text.rindex("}")]
    if re.match(r"namespace\s*\{", head):
        head = "inline namespace sandcove_nameless {"
    out, place = [head], 0
    for part in Splitter(body, 0).parts():
        out += [body[place : part.start], part.shared()]
        place = part.start + len(part.text)
    return "".join(out) + body[place:] + "}"
