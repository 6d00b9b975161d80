//! Relative links of the documentation lead to files and headings that exist, and every page is in the table of contents.

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
    }

    /// Every Markdown file below `directory`, without build output and installed packages.
    fn pages(directory: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if path.is_dir() {
                if !name.starts_with('.') && !matches!(name, "target" | "node_modules" | "cases" | "golden") {
                    pages(&path, found);
                }
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }

    /// The text outside code blocks.
    fn prose(text: &str) -> String {
        let mut in_code = false;
        let mut prose = String::new();
        for line in text.lines() {
            if line.trim_start().starts_with("```") {
                in_code = !in_code;
            } else if !in_code {
                // Code spans may hold anything; whole ones are every second part.
                prose.extend(line.split('`').step_by(2));
                prose.push('\n');
            }
        }
        prose
    }

    /// Targets of `[text](target)`, without those on the network.
    fn links(text: &str) -> Vec<String> {
        prose(text)
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split_once(')'))
            .map(|(target, _)| target.to_owned())
            .filter(|target| !target.contains("://") && !target.starts_with("mailto:"))
            .collect()
    }

    /// The anchors of headings, as GitHub and mdbook make them.
    fn anchors(text: &str) -> BTreeSet<String> {
        text.lines()
            .filter_map(|line| line.strip_prefix('#'))
            .map(|line| {
                let heading = line.trim_start_matches('#').trim().to_lowercase();
                heading
                    .chars()
                    .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
                    .map(|c| if c == ' ' { '-' } else { c })
                    .collect()
            })
            .collect()
    }

    #[test]
    fn every_relative_link_resolves() {
        let mut all = Vec::new();
        pages(&root(), &mut all);
        assert!(all.len() > 30, "the documentation has been found");
        let mut broken = Vec::new();
        for page in all {
            let text = std::fs::read_to_string(&page).unwrap();
            for link in links(&text) {
                let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
                let target = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
                let has_anchor = || {
                    let text = std::fs::read_to_string(&target).unwrap_or_default();
                    anchors(&text).contains(anchor)
                };
                if !target.exists() || (!anchor.is_empty() && !has_anchor()) {
                    broken.push(format!("{}: {link}", page.display()));
                }
            }
        }
        assert!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));
    }

    #[test]
    fn every_page_is_in_the_table_of_contents() {
        let docs = root().join("docs");
        let summary = std::fs::read_to_string(docs.join("SUMMARY.md")).unwrap();
        let listed: BTreeSet<PathBuf> = links(&summary).iter().map(|link| docs.join(link)).collect();
        let mut all = Vec::new();
        pages(&docs, &mut all);
        let missing: Vec<_> =
            all.iter().filter(|page| !page.ends_with("SUMMARY.md") && !listed.contains(*page)).collect();
        assert!(missing.is_empty(), "not in docs/SUMMARY.md: {missing:?}");
    }

    #[test]
    fn links_and_anchors_are_read_as_renderers_read_them() {
        let text = "# A b, c\n[x](a.md#y) `[no](code)` [z](https://e.org)\n```\n[no](block)\n```\n";
        assert_eq!(links(text), ["a.md#y"]);
        assert!(anchors(text).contains("a-b-c"));
    }
}
