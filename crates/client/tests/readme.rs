//! The README shows the program that is run as an example.

#[test]
fn the_readme_shows_the_quickstart_as_it_is() {
    let (_, program) = include_str!("../examples/quickstart.rs").split_once("\n\n").unwrap();
    assert!(include_str!("../README.md").contains(&format!("```rust,no_run\n{program}```")));
}
