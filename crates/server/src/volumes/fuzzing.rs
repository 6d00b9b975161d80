//! A property of volume tokens that holds for any text a client sends.

use sandcove_wire::secret::Secret;
use uuid::Uuid;

use super::token::Tokens;

/// Checks a token: only the one that was issued opens a volume, whatever is written before, after or instead of its parts.
pub fn volume_token(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let (tokens, id) = (Tokens::new(Secret::new("server")), Uuid::nil());
    let issued = tokens.issue(id, 100);
    assert!(tokens.opens(&issued, id, 99));
    // A proof that a client has found by itself would be one of these inputs.
    let proof = issued.rsplit('_').next().unwrap_or_default();
    for forged in
        [text.to_owned(), format!("{issued}{text}"), format!("{text}{issued}"), format!("vol_{text}_{proof}")]
    {
        let is_same = forged.eq_ignore_ascii_case(&issued) || forged == format!("vol_+100_{proof}");
        assert!(
            is_same || !tokens.opens(&forged, id, 99) || zeros_before(&forged, proof),
            "{forged:?} opens"
        );
        assert!(!tokens.opens(&forged, Uuid::max(), 99), "{forged:?} opens another volume");
    }
}

/// Whether only the number is written in another way.
fn zeros_before(forged: &str, proof: &str) -> bool {
    let number = forged.strip_prefix("vol_").and_then(|rest| rest.strip_suffix(&format!("_{proof}")));
    number.is_some_and(|number| number.parse() == Ok(100_i64))
}
