//! Oracles: what shows that an attack at the wall reached something. All of them are out of its reach.

use sandcove_redteam::canary;
use sandcove_redteam::report::Verdict;
use sandcove_wire::secret::Secret;

use super::Ruling;

/// A secret that must not come back.
#[derive(Debug)]
pub(super) struct Canary {
    pub(super) value: Secret,
    /// The kind of evidence.
    pub(super) kind: &'static str,
    /// Name of the secret, for a reader.
    pub(super) what: &'static str,
}

/// Evidence of breaches, as it comes up.
#[derive(Debug, Default)]
pub(super) struct Evidence {
    found: Vec<(&'static str, String)>,
}

impl Evidence {
    /// Adds a breach.
    pub(super) fn add(&mut self, kind: &'static str, text: impl Into<String>) {
        let text = text.into();
        if !self.found.iter().any(|(known, said)| *known == kind && *said == text) {
            self.found.push((kind, text));
        }
    }

    /// Looks for a receipt and for canaries in output.
    pub(super) fn search(&mut self, output: &str, receipt: &str, canaries: &[Canary]) {
        if let Some(line) = output.lines().find(|line| line.contains(receipt)) {
            let said = line.replace(receipt, "").trim().chars().take(200).collect::<String>();
            let said = if said.is_empty() { "the attack reported success".to_owned() } else { said };
            self.add("boundary-crossed", said);
        }
        for canary in canaries {
            if let Some(spelling) = canary::found(output, canary.value.expose()) {
                self.add(canary.kind, format!("{} is in the output ({spelling})", canary.what));
            }
        }
    }

    /// Whether nothing was found.
    pub(super) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Returns the ruling: breached.
    pub(super) fn ruling(self) -> Ruling {
        let mut kinds: Vec<String> = Vec::new();
        for (kind, _) in &self.found {
            if !kinds.iter().any(|known| known == kind) {
                kinds.push((*kind).to_owned());
            }
        }
        let texts: Vec<String> = self.found.into_iter().map(|(_, text)| text).collect();
        Ruling { verdict: Verdict::Breached, kinds, evidence: texts.join("; ") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receipts_and_canaries_are_evidence() {
        let canaries = [Canary {
            value: Secret::new("e2b_00112233445566"),
            kind: "sensitive-value-observed",
            what: "the key",
        }];
        let mut evidence = Evidence::default();
        evidence.search("a PROBE=77 b\n", "R-77-OK", &canaries);
        assert!(evidence.is_empty());
        evidence.search("got out R-77-OK\nand 66554433221100_b2e", "R-77-OK", &canaries);
        let ruling = evidence.ruling();
        assert_eq!(ruling.kinds, ["boundary-crossed", "sensitive-value-observed"]);
        assert_eq!(ruling.evidence, "got out; the key is in the output (reversed)");
    }
}
