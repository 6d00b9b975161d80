//! Modes of `--chmod`: octal numbers, and changes as `chmod` takes them.

/// Bits of permissions.
const PERMISSIONS: u32 = 0o7777;

/// The octal number, with four digits; `None` for symbolic changes.
pub fn octal(mode: &str) -> Option<String> {
    let number = u32::from_str_radix(mode, 8).ok().filter(|number| *number <= PERMISSIONS)?;
    mode.bytes().all(|byte| byte.is_ascii_digit()).then(|| format!("{number:04o}"))
}

/// Whether a text is a mode.
pub fn is_mode(mode: &str) -> bool {
    octal(mode).is_some() || changed(mode, 0, false).is_some()
}

/// A mode after symbolic changes such as `u+x,go-w`; `None` if they are invalid.
pub(crate) fn changed(changes: &str, mode: u32, is_directory: bool) -> Option<u32> {
    let mut bits = mode & PERMISSIONS;
    for change in changes.split(',') {
        let operator = change.find(['+', '-', '='])?;
        let (who, mut rest) = change.split_at(operator);
        let who = match who {
            "" | "a" => 0o777 | 0o7000,
            who => who.chars().try_fold(0, |all, c| {
                Some(
                    all | match c {
                        'u' => 0o4700,
                        'g' => 0o2070,
                        'o' => 0o1007,
                        'a' => 0o7777,
                        _ => return None,
                    },
                )
            })?,
        };
        while let Some(operator) = rest.chars().next() {
            let end = rest[1..].find(['+', '-', '=']).map_or(rest.len(), |at| at + 1);
            let mut set = 0;
            for c in rest[1..end].chars() {
                set |= match c {
                    'r' => 0o444,
                    'w' => 0o222,
                    'x' => 0o111,
                    'X' if is_directory || bits & 0o111 != 0 => 0o111,
                    'X' => 0,
                    's' => 0o6000,
                    't' => 0o1000,
                    _ => return None,
                };
            }
            bits = match operator {
                '+' => bits | (set & who),
                '-' => bits & !(set & who),
                _ => (bits & !(who & 0o777)) | (set & who),
            };
            rest = &rest[end..];
        }
    }
    Some((mode & !PERMISSIONS) | bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_octal_or_changes() {
        assert_eq!(octal("755").as_deref(), Some("0755"));
        assert_eq!(octal("04755").as_deref(), Some("4755"));
        for bad in ["", "888", "10000", "+x", "-1"] {
            assert_eq!(octal(bad), None, "{bad}");
        }
        assert!(is_mode("u+x,go-w") && is_mode("+x") && is_mode("a=rX") && !is_mode("x") && !is_mode("u+q"));
    }

    #[test]
    fn changes_are_applied_as_by_chmod() {
        for (changes, mode, expected) in [
            ("+x", 0o100_644, 0o100_755),
            ("u+x,go-r", 0o644, 0o700),
            ("go=", 0o755, 0o700),
            ("a=rX", 0o644, 0o444),
            ("a=rX", 0o755, 0o555),
            ("u=rwx,g=rx,o=", 0o000, 0o750),
            ("u+s", 0o755, 0o4755),
            ("ug+x-w", 0o644, 0o754 & !0o200),
        ] {
            assert_eq!(changed(changes, mode, false), Some(expected), "{changes} {mode:o}");
        }
        assert_eq!(changed("+X", 0o644, true), Some(0o755));
    }
}
