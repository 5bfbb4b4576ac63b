//! Colours of states, in light and dark, and escaping of text.

use super::states::State;

/// The colours of one theme.
struct Theme {
    back: &'static str,
    ink: &'static str,
    dim: &'static str,
    line: &'static str,
    group: &'static str,
    plain: &'static str,
    /// Fill and border of each state, in the order of [`State::ALL`].
    states: [(&'static str, &'static str); 9],
}

const LIGHT: Theme = Theme {
    back: "#ffffff",
    ink: "#1d2733",
    dim: "#5d6b7a",
    line: "#8a97a6",
    group: "#f4f6f9",
    plain: "#eef2f7",
    states: [
        ("#f3f4f6", "#9aa5b1"),
        ("#fff3d1", "#c98a00"),
        ("#f6efdd", "#a1824a"),
        ("#dcf5e3", "#2f9152"),
        ("#dcecfb", "#3a7fbd"),
        ("#f7f7f7", "#b9c1ca"),
        ("#fde0de", "#c8342b"),
        ("#f1e3fb", "#8a4bbd"),
        ("#eceae4", "#8a7d5c"),
    ],
};

const DARK: Theme = Theme {
    back: "#14191f",
    ink: "#e6ebf0",
    dim: "#9aa8b6",
    line: "#6b7886",
    group: "#1a2129",
    plain: "#222b35",
    states: [
        ("#222831", "#5f6b78"),
        ("#4a3a10", "#e0a92e"),
        ("#332d1c", "#9c8654"),
        ("#163d25", "#4cba74"),
        ("#16324a", "#5aa2de"),
        ("#1a1f25", "#454f5a"),
        ("#4d1d1b", "#f0655c"),
        ("#3a2150", "#b987e3"),
        ("#35301f", "#b5a67c"),
    ],
};

/// Returns the CSS rules for all pictures; every class begins with `of-`, so that pictures may stand in any page.
pub(crate) fn rules() -> String {
    let shape = "\
.of text{font-family:ui-sans-serif,system-ui,'Segoe UI','DejaVu Sans',Helvetica,Arial,sans-serif;font-size:13px}\n\
.of .of-name{font-weight:600}\n\
.of .of-small{font-size:11px}\n\
.of .of-arrow{fill:none;stroke-width:1.4}\n\
.of .of-box{stroke-width:1.4}\n\
.of .of-group{stroke-width:1.2;stroke-dasharray:5 4}\n\
.of .of-skipped{stroke-dasharray:3 3}\n";
    format!("{shape}{}@media (prefers-color-scheme:dark){{\n{}}}\n", theme(&LIGHT), theme(&DARK))
}

fn theme(theme: &Theme) -> String {
    let Theme { back, ink, dim, line, group, plain, states } = theme;
    let mut rules = format!(
        ".of .of-back{{fill:{back}}}\n.of text{{fill:{ink}}}\n.of .of-dim{{fill:{dim}}}\n.of .of-arrow{{stroke:{line}}}\n\
         .of .of-head{{fill:{line}}}\n.of .of-group{{fill:{group};stroke:{line}}}\n.of .of-plain{{fill:{plain};stroke:{line}}}\n\
         .of .of-grid{{stroke:{plain}}}\n"
    );
    for (state, (fill, border)) in State::ALL.into_iter().zip(states) {
        let word = state.word();
        rules
            .push_str(&format!(".of .of-{word}{{fill:{fill};stroke:{border}}}\n.of .of-bar-{word}{{fill:{border}}}\n"));
    }
    rules
}

/// Returns the fill and border of a state in the light theme, for formats that have only one.
pub(crate) fn colours(state: State) -> (&'static str, &'static str) {
    let at = State::ALL.iter().position(|other| *other == state).unwrap_or(0);
    LIGHT.states[at]
}

/// Escapes text for XML and HTML, also between quotes. Characters that no document may hold are replaced by visible
/// ones.
pub(crate) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            '\n' | '\t' => safe.push(letter),
            letter if letter.is_control() || matches!(letter, '\u{fffe}' | '\u{ffff}') => safe.push('\u{fffd}'),
            letter => safe.push(letter),
        }
    }
    safe
}

/// Cuts a text to at most so many letters.
pub(crate) fn short(text: &str, most: usize) -> String {
    match text.chars().count() > most {
        true => text.chars().take(most.saturating_sub(1)).chain(['…']).collect(),
        false => text.to_owned(),
    }
}

/// Wraps a drawing of this width and height as a whole SVG document.
pub(crate) fn document(title: &str, (body, width, height): (String, f64, f64)) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"of\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
         height=\"{height:.0}\" role=\"img\">\n<title>{}</title>\n<style>\n{}</style>\n{body}</svg>\n",
        escape(title),
        rules()
    )
}

/// Wraps it for a page that has the CSS rules already.
pub(crate) fn inline(title: &str, (body, width, height): (String, f64, f64)) -> String {
    format!(
        "<svg class=\"of\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" height=\"{height:.0}\" role=\"img\" \
         aria-label=\"{}\">\n{body}</svg>\n",
        escape(title)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_can_hold_anything_and_breaks_nothing() {
        assert_eq!(escape("<a href=\"x\">'&\u{1}"), "&lt;a href=&quot;x&quot;&gt;&#39;&amp;\u{fffd}");
        assert_eq!(short("abcdef", 4), "abc…");
        assert_eq!(short("äöü", 3), "äöü");
    }
}
