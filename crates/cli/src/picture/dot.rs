//! A scene in the language of Graphviz.

use super::{
    scene::{BoxKind, Repeats, Scene},
    style::colours,
};

/// Makes the whole document.
pub(crate) fn document(scene: &Scene) -> String {
    let mut text = format!("digraph {} {{\n", quoted(&scene.title));
    text.push_str("  node [shape=box, style=\"rounded,filled\", fillcolor=\"#eef2f7\", fontname=\"sans-serif\"];\n");
    inside(scene, None, 1, &mut text);
    for (from, to) in &scene.arrows {
        let (from, to) = (&scene.boxes[*from].id, &scene.boxes[*to].id);
        text.push_str(&format!("  {} -> {};\n", quoted(from), quoted(to)));
    }
    text.push_str("}\n");
    text
}

fn inside(scene: &Scene, group: Option<usize>, depth: usize, text: &mut String) {
    let pad = "  ".repeat(depth);
    for one in scene.boxes.iter().filter(|one| one.group == group) {
        let mut label = one.name.clone();
        let mut more = String::new();
        if one.is_step() {
            label = format!("{label}\n{}{}", one.repeats.before(), one.word());
        }
        if scene.is_run && one.has_state() {
            let (fill, border) = colours(one.state.state);
            more = format!(", fillcolor=\"{fill}\", color=\"{border}\"");
            let told = one.state.told();
            label = format!("{label}\n{}{}{told}", one.state.state.word(), if told.is_empty() { "" } else { " · " });
        }
        let shape = match one.kind {
            BoxKind::Input | BoxKind::Output => ", shape=ellipse",
            _ if one.repeats == Repeats::Each => ", peripheries=2",
            _ => "",
        };
        text.push_str(&format!("{pad}{} [label={}{shape}{more}];\n", quoted(&one.id), quoted(&label)));
    }
    for (at, inner) in scene.groups.iter().enumerate().filter(|(_, inner)| inner.group == group) {
        text.push_str(&format!("{pad}subgraph {} {{\n", quoted(&format!("cluster_{}", inner.id))));
        let label = format!("{}{}", inner.repeats.before(), inner.name);
        text.push_str(&format!("{pad}  label={}; style=\"rounded,dashed\";\n", quoted(&label)));
        inside(scene, Some(at), depth + 1, text);
        text.push_str(&format!("{pad}}}\n"));
    }
}

/// Quotes a text.
fn quoted(text: &str) -> String {
    let mut safe = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' => safe.push_str("\\\""),
            '\\' => safe.push_str("\\\\"),
            '\n' => safe.push_str("\\n"),
            letter if letter.is_control() => safe.push('\u{fffd}'),
            letter => safe.push(letter),
        }
    }
    safe.push('"');
    safe
}
