//! The scene of a stream: a box for each source, step and sink, a group for each stage that they run in.

use super::scene::{BoxKind, Repeats, Scene, SceneGroup};
use onceflow_spec::StreamPart;
use std::collections::BTreeMap;

impl Scene {
    /// Makes the scene of a stream; `stage_of` tells the stage of a part.
    pub(crate) fn of_stream(title: &str, parts: &[StreamPart], stage_of: impl Fn(&str) -> Option<usize>) -> Self {
        let mut scene = Scene { title: title.to_owned(), ..Scene::default() };
        let mut groups = BTreeMap::new();
        for part in parts {
            let id = if part.is_sink { format!("sinks.{}", part.name) } else { part.name.clone() };
            let at = scene.add(id, part.name.clone(), BoxKind::Step(part.kind.to_owned()));
            scene.arrows.extend(part.inputs.iter().map(|input| (*input, at)));
            if let Some(stage) = stage_of(&part.planned) {
                let group = *groups.entry(stage).or_insert_with(|| {
                    let name = format!("stage {stage}");
                    scene.groups.push(SceneGroup { id: name.clone(), name, repeats: Repeats::Once, group: None });
                    scene.groups.len() - 1
                });
                scene.boxes[at].group = Some(group);
            }
        }
        scene
    }
}
