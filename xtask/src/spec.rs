//! Every promise of docs/internals/spec.md names tests that exist.

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::path::{Path, PathBuf};

    /// Directories for short names in the table.
    const PLACES: [&str; 5] =
        ["", "tests/sdk-python", "tests/sdk-js", "tests/eval", "crates/server/tests/server"];

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
    }

    fn file(name: &str) -> Option<PathBuf> {
        PLACES.iter().map(|place| root().join(place).join(name)).find(|path| path.exists())
    }

    #[test]
    fn every_promise_names_a_test_that_exists() {
        let spec = std::fs::read_to_string(root().join("docs/internals/spec.md")).unwrap();
        let rows: Vec<&str> = spec.lines().filter(|line| line.starts_with("| ")).skip(2).collect();
        assert!(rows.len() > 50);
        for row in rows {
            let tests = row.split(" | ").nth(1).unwrap_or_else(|| panic!("no test: {row}"));
            let mut text = String::new();
            let mut found = 0;
            for name in tests.split('`').skip(1).step_by(2) {
                let (path, test) = name.split_once("::").unwrap_or((name, ""));
                if path.contains(['/', '.']) && !path.contains('*') {
                    let path = file(path).unwrap_or_else(|| panic!("`{path}` does not exist: {row}"));
                    text = std::fs::read_to_string(path).unwrap_or_default();
                    found += 1;
                }
                let defined = [format!("def {test}("), format!("fn {test}(")];
                assert!(
                    test.is_empty() || defined.iter().any(|line| text.contains(line)),
                    "there is no `{test}`: {row}"
                );
            }
            assert!(found > 0, "no file of tests: {row}");
        }
    }
}
