//! The permission text of an entry, in the style of Go's `FileMode`, which is what clients show (contract: envd,
//! section 3.1).

/// File type bits of `st_mode`, as in `inode(7)`.
const TYPE_MASK: u32 = 0o170_000;

/// Formats a mode as type and mode letters, then nine permission letters: `-rw-r--r--`, `dtrwxrwxrwx`, `Dcrw-rw-rw-`.
pub(super) fn text(mode: u32) -> String {
    let mut text = String::with_capacity(12);
    text.push_str(match mode & TYPE_MASK {
        0o040_000 => "d",
        0o120_000 => "L",
        0o060_000 => "D",
        0o020_000 => "D",
        0o010_000 => "p",
        0o140_000 => "S",
        _ => "",
    });
    // Go writes a letter for each set bit, in this order; a character device has two.
    let letters = [
        (mode & 0o4000 != 0, 'u'),
        (mode & 0o2000 != 0, 'g'),
        (is_character_device(mode), 'c'),
        (mode & 0o1000 != 0, 't'),
    ];
    text.extend(letters.iter().filter(|(set, _)| *set).map(|(_, letter)| letter));
    if text.is_empty() {
        text.push('-');
    }
    let bit = |shift: u32| mode & (1 << shift) != 0;
    text.extend(
        (0..9).rev().zip("rwxrwxrwx".chars()).map(|(shift, letter)| if bit(shift) { letter } else { '-' }),
    );
    text
}

fn is_character_device(mode: u32) -> bool {
    mode & TYPE_MASK == 0o020_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_those_of_the_original() {
        let cases = [
            (0o100_644, "-rw-r--r--"),
            (0o040_755, "drwxr-xr-x"),
            (0o041_777, "dtrwxrwxrwx"),
            (0o106_755, "ugrwxr-xr-x"),
            (0o120_777, "Lrwxrwxrwx"),
            (0o010_644, "prw-r--r--"),
            (0o020_666, "Dcrw-rw-rw-"),
            (0o060_660, "Drw-rw----"),
            (0o140_755, "Srwxr-xr-x"),
            (0o100_000, "----------"),
        ];
        for (mode, expected) in cases {
            assert_eq!(text(mode), expected, "{mode:o}");
        }
    }
}
