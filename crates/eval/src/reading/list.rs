//! Lists written in one text, as cells of tables and values of assertions hold them.

/// Splits `"a, b", c` at the commas outside quotes. A quote inside quotes is written `\"` or `""`.
pub fn quoted_list(text: &str) -> Vec<String> {
    let mut items = vec![String::new()];
    let mut quoted = false;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let Some(item) = items.last_mut() else { break };
        match c {
            '\\' if quoted && chars.peek() == Some(&'"') => item.extend(chars.next()),
            '"' if quoted && chars.peek() == Some(&'"') => item.extend(chars.next()),
            '"' if quoted => quoted = false,
            '"' if item.trim().is_empty() => {
                item.clear();
                quoted = true;
            }
            ',' if !quoted => items.push(String::new()),
            c => item.push(c),
        }
    }
    items.iter().map(|item| item.trim().to_owned()).filter(|item| !item.is_empty()).collect()
}
