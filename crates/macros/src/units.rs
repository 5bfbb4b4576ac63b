//! Durations and sizes, as people write them: `"1m30s"`, `"2GB"`.

use syn::LitStr;

const DURATIONS: [(&str, u64); 5] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

const SIZES: [(&str, u64); 9] = [
    ("B", 1),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

/// Parses a duration to milliseconds.
pub(crate) fn duration_ms(text: &LitStr) -> syn::Result<u64> {
    let wrong = || {
        format!("`{}` is not a duration: write it like \"250ms\", \"30s\", \"1m30s\", \"2h\" or \"1d\"", text.value())
    };
    parse(&text.value(), &DURATIONS).ok_or_else(|| syn::Error::new(text.span(), wrong()))
}

/// Parses a size to bytes.
pub(crate) fn bytes(text: &LitStr) -> syn::Result<u64> {
    let wrong = || format!("`{}` is not a size: write it like \"512MB\", \"2GB\" or \"2GiB\"", text.value());
    parse(&text.value(), &SIZES).ok_or_else(|| syn::Error::new(text.span(), wrong()))
}

/// Parses numbers, each with a unit, and adds them up.
fn parse(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let (mut rest, mut sum) = (text, 0_u64);
    loop {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let (number, unit) = rest.split_at(digits);
        let end = unit.find(|c: char| c.is_ascii_digit()).unwrap_or(unit.len());
        let (_, factor) = units.iter().find(|(name, _)| *name == unit[..end].trim())?;
        sum = sum.checked_add(number.parse::<u64>().ok()?.checked_mul(*factor)?)?;
        rest = &unit[end..];
        if rest.is_empty() {
            return Some(sum);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_sizes_are_read_or_refused() {
        let durations = [
            ("250ms", Some(250)),
            ("30s", Some(30_000)),
            ("1m30s", Some(90_000)),
            ("2 h", Some(7_200_000)),
            ("1d", Some(86_400_000)),
            ("0s", Some(0)),
            ("", None),
            ("30", None),
            ("s", None),
            ("soon", None),
            ("-1s", None),
            ("1.5s", None),
            ("1S", None),
            ("99999999999999999999s", None),
            ("999999999999999999d", None),
        ];
        for (text, wanted) in durations {
            assert_eq!(parse(text, &DURATIONS), wanted, "{text}");
        }
        for (text, wanted) in
            [("2GB", Some(2_000_000_000)), ("2GiB", Some(2 << 30)), ("2 KB", Some(2000)), ("2G", None)]
        {
            assert_eq!(parse(text, &SIZES), wanted, "{text}");
        }
    }
}
