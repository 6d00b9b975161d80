use super::*;

fn one(text: &str) -> Instruction {
    let mut file = parse(text).unwrap();
    assert_eq!(file.instructions.len(), 1, "{text}");
    file.instructions.remove(0)
}

fn failure(text: &str) -> String {
    parse(text).unwrap_err().located("Dockerfile")
}

#[test]
fn continuation_lines_skip_comments_and_empty_lines() {
    let run = one("RUN a \\\n  # why\n\n  && b \\  \n\t&& c\n");
    assert_eq!(run.args, ["a   && b \t&& c"]);
    assert_eq!((run.line, run.end), (1, 5));
    let file = parse("FROM x\nRUN a \\\n\n b\n").unwrap();
    assert_eq!(file.notices[0].line, 2);
    assert_eq!(one(r"RUN a \\").args, [r"a \\"], "an escaped escape character continues nothing");
    assert_eq!(one("RUN a \\\n# end").args, ["a"]);
}

#[test]
fn directives_change_the_escape_character() {
    let file = parse("# syntax=docker/dockerfile:1\n# escape=`\nFROM x\nRUN a `\n b\\\n").unwrap();
    assert_eq!((file.escape, file.instructions[1].args[0].as_str()), ('`', "a  b\\"));
    let late = parse("FROM x\n# escape=`\n").unwrap();
    assert_eq!(late.escape, '\\');
    assert!(failure("# escape=x\nFROM a").starts_with("Dockerfile:1: invalid escape character `x`"));
    assert!(
        failure("# check=a\n# check=b\nFROM a").starts_with("Dockerfile:2: the parser directive `check`")
    );
    assert_eq!(parse("# a comment\n# escape=`\nFROM x").unwrap().escape, '\\');
}

#[test]
fn keywords_are_in_any_case_and_others_unknown() {
    assert_eq!(one("from x as y").name, "FROM");
    assert_eq!(one("\u{feff}  Run a").args, ["a"]);
    let unknown = failure("FROM x\nRNU a");
    assert!(unknown.starts_with("Dockerfile:2: unknown instruction `RNU`\nhint: "), "{unknown}");
}

#[test]
fn json_forms_are_arrays_of_strings() {
    let run = one(r#"RUN ["a b", "c\"d"]"#);
    assert!(run.is_json);
    assert_eq!(run.args, ["a b", "c\"d"]);
    for shell in ["RUN [ -e x ] && y", "RUN ['a']", r#"RUN ["a",]"#, "RUN [[ a ]]"] {
        assert!(!one(shell).is_json, "{shell}");
    }
    assert!(failure("FROM x\nRUN [1]").starts_with("Dockerfile:2: `1` in the JSON array is not a string"));
    assert_eq!(one(r#"COPY ["a b", "c"]"#).args, ["a b", "c"]);
}

#[test]
fn assignments_have_two_forms() {
    assert_eq!(one("ENV a=1 b='x y' c=\\ d").args, ["a", "1", "=", "b", "'x y'", "=", "c", "\\ d", "="]);
    assert_eq!(one("ENV a  1 b=2").args, ["a", "1 b=2", ""]);
    assert_eq!(one("ENV a=").args, ["a", "", "="]);
    assert!(failure("ENV a").contains("has no value"));
    assert!(failure("ENV a=1 b").contains("`b` is not NAME=VALUE"));
    assert_eq!(one("ARG a b=c\\ d").args, ["a", "b=c\\ d"]);
}

#[test]
fn flags_come_before_arguments() {
    let copy = one("COPY --from=x --chown=\"a b\" -- --c d");
    assert_eq!(copy.flags, ["--from=x", "--chown=a b"]);
    assert_eq!(copy.args, ["--c", "d"]);
    assert_eq!(one("RUN --mount=type=cache,target=/x a --b").flags, ["--mount=type=cache,target=/x"]);
    assert_eq!(one("RUN a --b").flags.len(), 0);
}

#[test]
fn heredocs_are_read_wherever_they_begin() {
    let run = one("RUN python3 <<EOF && cat <<-'B' > /x\nprint(1)\nEOF\n\tb\n\tB\n");
    let docs: Vec<_> = run.heredocs.iter().map(|doc| (doc.name.as_str(), doc.text(), doc.expand)).collect();
    assert_eq!(docs, [("EOF", "print(1)\n".to_owned(), true), ("B", "b\n".to_owned(), false)]);
    assert_eq!(run.end, 5);
    let copy = one("COPY <<a.txt <<b.txt /dir/\n1\na.txt\n2\nb.txt\n");
    assert_eq!(copy.heredocs.len(), 2);
    assert!(failure("RUN <<EOF\nx\n").starts_with("Dockerfile:1: the heredoc `EOF` has no end\nhint: "));
    assert_eq!(one("CMD cat <<EOF").heredocs.len(), 0);
    assert_eq!(one("RUN echo $((1<<2))").heredocs.len(), 0);
    assert_eq!(one("RUN cat <<<text").heredocs.len(), 0);
}

#[test]
fn line_ends_of_windows_are_read() {
    let file = parse("FROM x\r\nRUN a \\\r\n b\r\nCOPY <<EOF /x\r\nc\r\nEOF\r\n").unwrap();
    assert_eq!(file.instructions[1].args, ["a  b"]);
    assert_eq!(file.instructions[2].heredocs[0].content, "c\r\n");
}

proptest::proptest! {
    #[test]
    fn the_parser_never_panics(text in "(FROM |RUN |COPY |ENV |\\[|\"|<<|EOF|--a|\\\\|\n|#|=| |.){0,40}") {
        let _ = parse(&text);
    }
}
