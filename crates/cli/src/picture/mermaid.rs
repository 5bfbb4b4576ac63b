//! A scene in the language of Mermaid, which many wikis and forges draw.

use super::{
    scene::{BoxKind, Repeats, Scene},
    states::State,
    style::colours,
};

/// Makes the whole document.
pub(crate) fn document(scene: &Scene) -> String {
    let mut text = format!("---\ntitle: {}\n---\nflowchart TD\n", serde_json::json!(scene.title));
    inside(scene, None, 1, &mut text);
    for (from, to) in &scene.arrows {
        text.push_str(&format!("  b{from} --> b{to}\n"));
    }
    if scene.is_run {
        for state in State::ALL {
            let (fill, border) = colours(state);
            let members: Vec<_> =
                scene.boxes.iter().enumerate().filter(|(_, one)| one.has_state() && one.state.state == state).collect();
            if !members.is_empty() {
                let names: Vec<_> = members.iter().map(|(at, _)| format!("b{at}")).collect();
                let word = state.word();
                text.push_str(&format!("  classDef {word} fill:{fill},stroke:{border},color:#1d2733\n"));
                text.push_str(&format!("  class {} {word}\n", names.join(",")));
            }
        }
    }
    text
}

fn inside(scene: &Scene, group: Option<usize>, depth: usize, text: &mut String) {
    let pad = "  ".repeat(depth);
    for (at, one) in scene.boxes.iter().enumerate().filter(|(_, one)| one.group == group) {
        let (open, close) = match one.kind {
            BoxKind::Input | BoxKind::Output => ("([", "])"),
            _ if one.repeats == Repeats::Each => ("[[", "]]"),
            _ => ("[", "]"),
        };
        let mut label = label(&one.name);
        if one.is_step() {
            label.push_str(&format!("<br/>{}{}", one.repeats.before(), self::label(one.word())));
        }
        if scene.is_run && one.has_state() {
            let told = one.state.told();
            label.push_str(&format!(
                "<br/>{}{}{told}",
                one.state.state.word(),
                if told.is_empty() { "" } else { " · " }
            ));
        }
        text.push_str(&format!("{pad}b{at}{open}\"{label}\"{close}\n"));
    }
    for (at, inner) in scene.groups.iter().enumerate().filter(|(_, inner)| inner.group == group) {
        text.push_str(&format!("{pad}subgraph g{at} [\"{}{}\"]\n", inner.repeats.before(), label(&inner.name)));
        inside(scene, Some(at), depth + 1, text);
        text.push_str(&format!("{pad}end\n"));
    }
}

/// Quotes a text: characters that would end it, or be markup, are written by their number.
fn label(text: &str) -> String {
    let mut safe = String::new();
    for letter in text.chars() {
        match letter {
            letter if letter.is_alphanumeric() || " _-.,:/()[]+*=·×".contains(letter) => safe.push(letter),
            letter if letter.is_control() => safe.push('\u{fffd}'),
            letter => safe.push_str(&format!("#{};", u32::from(letter))),
        }
    }
    safe
}
