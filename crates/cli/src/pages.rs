//! The pages of error codes, as they are in `docs/errors`.

/// Code and page, in order.
pub(crate) const PAGES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/pages.rs"));

/// Finds the page of a code: `OF0012`, `of12` and `12` are the same.
pub(crate) fn find(code: &str) -> Option<&'static (&'static str, &'static str)> {
    let number = code.trim_start_matches(['O', 'o']).trim_start_matches(['F', 'f']);
    let number: u32 = number.parse().ok()?;
    PAGES.iter().find(|(code, _)| code[2..].parse() == Ok(number))
}

/// The title of a page: its first line without the mark of a heading and the code.
pub(crate) fn title(page: &str) -> &str {
    let first = page.lines().next().unwrap_or_default().trim_start_matches(['#', ' ']);
    match first.split_once(':') {
        Some((code, title)) if code.starts_with("OF") => title.trim(),
        _ => first,
    }
}
