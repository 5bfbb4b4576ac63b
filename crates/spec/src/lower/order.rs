//! Orders steps so that each comes after those it refers to, whose output types are then known.

use crate::{
    source::Text,
    syntax::{
        NodeKind, YamlNode,
        http::{HttpBodyDecl, HttpDecl},
        kinds::{StepKind, StreamPlace},
        outs::OutputPlace,
        step::StepDecl,
    },
};
use onceflow_exec::{expr, template};
use std::collections::{BTreeMap, BTreeSet};

/// Returns the positions of the steps, each after those it refers to; steps that wait for each other come last.
pub(super) fn order(steps: &[StepDecl]) -> Vec<usize> {
    let positions: BTreeMap<&str, usize> =
        steps.iter().enumerate().map(|(at, step)| (step.name.name.as_str(), at)).collect();
    let mut waits: Vec<BTreeSet<usize>> = Vec::new();
    let mut feeds: Vec<Vec<usize>> = vec![vec![]; steps.len()];
    for (at, step) in steps.iter().enumerate() {
        let mentioned = mentions(step);
        let before: BTreeSet<usize> =
            mentioned.iter().filter_map(|name| positions.get(name.as_str()).copied()).collect();
        before.iter().for_each(|other| feeds[*other].push(at));
        waits.push(before);
    }
    let mut ready: BTreeSet<usize> = (0..steps.len()).filter(|at| waits[*at].is_empty()).collect();
    let mut order = Vec::new();
    while let Some(at) = ready.pop_first() {
        order.push(at);
        for next in &feeds[at] {
            if waits[*next].remove(&at) && waits[*next].is_empty() {
                ready.insert(*next);
            }
        }
    }
    let placed: BTreeSet<usize> = order.iter().copied().collect();
    order.extend((0..steps.len()).filter(|at| !placed.contains(at)));
    order
}

/// Returns the first names of all references of a step and the steps inside it.
pub(super) fn mentions(step: &StepDecl) -> BTreeSet<String> {
    let mut found = Mentions::default();
    found.step(step);
    found.0
}

#[derive(Default)]
struct Mentions(BTreeSet<String>);

impl Mentions {
    fn expression(&mut self, source: &str) {
        if let Ok(compiled) = expr::compile(source) {
            self.0.extend(compiled.references().iter().map(|reference| reference.path[0].clone()));
        }
    }

    fn template(&mut self, text: &Text) {
        if let Ok(parsed) = template::parse(&text.text) {
            parsed.template.holes().for_each(|hole| self.expression(hole));
        }
    }

    fn step(&mut self, step: &StepDecl) {
        for (_, text) in &step.ins {
            self.expression(&text.text);
        }
        for text in &step.uses {
            self.expression(&text.text);
        }
        for given in &step.gives {
            self.expression(&given.value.text);
        }
        for out in &step.outs {
            if let OutputPlace::Path(text) = &out.from {
                self.template(text);
            }
        }
        for (_, range) in step.each.iter().flat_map(|each| &each.over) {
            self.expression(&step.each.as_ref().map_or("", |each| &each.text.text)[range.clone()]);
        }
        if let Some(when) = &step.when {
            self.expression(&when.text);
        }
        if let Some(repeat) = &step.repeat {
            repeat.carry.iter().for_each(|(_, text)| self.expression(&text.text));
            repeat.again.iter().for_each(|text| self.expression(&text.text));
        }
        self.0.extend(step.after.iter().map(|after| after.text.clone()));
        step.how.env.iter().for_each(|(_, text)| self.template(text));
        step.undo.iter().for_each(|undo| self.step(undo));
        self.kind(&step.kind);
    }

    fn kind(&mut self, kind: &StepKind) {
        match kind {
            StepKind::Run(text) => self.template(text),
            // Operations of a scope see messages only.
            StepKind::Script { .. } | StepKind::Flow(_) | StepKind::Wait(_) | StepKind::Scope(_) => {}
            StepKind::Stream(StreamPlace::File(_)) => {}
            StepKind::Stream(StreamPlace::Here(node)) => self.json(node),
            StepKind::Http(http) => self.http(http),
            StepKind::Expr(all) => all.iter().for_each(|(_, text)| self.expression(&text.text)),
            StepKind::Steps(steps) | StepKind::Choose(steps) => steps.iter().for_each(|step| self.step(step)),
        }
    }

    fn http(&mut self, http: &HttpDecl) {
        self.template(&http.url);
        http.headers.iter().for_each(|(_, text)| self.template(text));
        match &http.body {
            Some(HttpBodyDecl::Json(node)) => self.json(node),
            Some(HttpBodyDecl::Text(text)) => self.template(text),
            Some(HttpBodyDecl::File(text)) => self.expression(&text.text),
            None => {}
        }
    }

    fn json(&mut self, node: &YamlNode) {
        match &node.what {
            NodeKind::Scalar(..) => node.text().iter().for_each(|text| self.template(text)),
            NodeKind::List(items) => items.iter().for_each(|item| self.json(item)),
            NodeKind::Map(entries) => entries.iter().for_each(|(_, value)| self.json(value)),
        }
    }
}
