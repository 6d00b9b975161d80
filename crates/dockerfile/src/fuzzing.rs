//! Checks that must hold for any Dockerfile. The programs in `fuzz/` search for text that breaks them; the test below replays the
//! inputs they have collected.

use crate::plan::{Options, Plan};
use crate::source::parse;
use crate::{Error, Ignore};

/// Checks a text as a Dockerfile and as a `.dockerignore`.
pub fn dockerfile(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let lines = text.split('\n').count();
    let is_told = |error: &Error| assert!(!error.located("Dockerfile").is_empty());
    match parse(text) {
        Ok(file) => {
            let mut last = 0;
            for instruction in &file.instructions {
                assert!(last < instruction.line, "an instruction begins before the end of the one above");
                assert!(instruction.line <= instruction.end && instruction.end <= lines);
                last = instruction.end;
            }
            if let Err(error) = Plan::new(&file, &Options::default()) {
                is_told(&error);
            }
        }
        Err(error) => is_told(&error),
    }
    if let Ok(ignore) = Ignore::new(text.lines()) {
        for path in ["a", "a/b.txt", "node_modules/x/y"] {
            ignore.matches(path);
            ignore.may_include_below(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    #[test]
    fn the_dockerfiles_collected_by_fuzzing_hold() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/dockerfile");
        let inputs: Vec<_> = std::fs::read_dir(corpus).unwrap().collect();
        assert!(!inputs.is_empty());
        for input in inputs {
            super::dockerfile(&std::fs::read(input.unwrap().path()).unwrap());
        }
    }
}
