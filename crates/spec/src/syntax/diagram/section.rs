//! Sections of a diagram: the operations of a template, in place of the section, under names of their own.

use super::{Diagram, Place, Region, field, text};
use crate::{
    source::Text,
    syntax::{MapKey, NodeKind, YamlNode, fields::Fields, scope::TargetDecl},
    words,
};
use std::collections::BTreeMap;

/// Templates within templates.
const DEPTH_MAX: usize = 16;

impl<'a> Diagram<'a> {
    pub(super) fn section(
        &mut self,
        key: &MapKey,
        fields: &mut Fields<'a>,
        place: &Place<'a>,
        on_error: Option<&TargetDecl>,
        region: &mut Region,
    ) {
        let (template, builder) = (fields.text("template"), fields.take("builder"));
        let _its_operations_have_their_own = fields.take("config");
        let connect = fields.get("connect").map(|node| self.reader.entries(node, "`connect`")).unwrap_or_default();
        if let Some((builder, _)) = builder {
            let hint = "a section with a `template` can be read";
            let message = format!("section `{}` is built by code that is not here", key.name);
            return self.reader.say(builder.span, "OF0144", message, hint);
        }
        let Some(template) = template else {
            return fields.missing("`template`", "the name of one of the diagram's `templates`");
        };
        let Some(node) = self.template(&template) else { return };
        if self.depth == DEPTH_MAX {
            let message = format!("more than {DEPTH_MAX} templates stand inside each other");
            return self.reader.say(template.span, "OF0107", message, "a template cannot contain itself");
        }
        let Some(mut inner) = self.reader.fields(node, format!("template `{}`", template.text)) else { return };
        let (Some(ops), outputs) = (inner.get("ops"), inner.get("outputs")) else {
            return inner.missing("`ops`", "the operations of the section");
        };
        for slots in ["inputs", "buffers"] {
            let _read_where_it_is_referred_to = inner.take(slots);
        }
        inner.finish();
        let slots = outputs.map(|node| self.slots(node)).unwrap_or_default();
        let mut leads = BTreeMap::new();
        for (slot, _) in &slots {
            let target = connect.iter().find(|(key, _)| key.name == *slot);
            let target = target.and_then(|(_, node)| self.target(node, place));
            leads.insert(slot.clone(), target.unwrap_or_else(|| TargetDecl::Name(text("dispose", key.span))));
        }
        for (key, _) in connect.iter().filter(|(key, _)| !leads.contains_key(&key.name)) {
            let hint = words::meant(&key.name, leads.keys().map(String::as_str));
            self.reader.say(key.span, "OF0116", format!("the section has no output `{}`", key.name), hint);
        }
        let entries = self.reader.entries(ops, "`ops`");
        let own = Place {
            prefix: format!("{}{}.", place.prefix, key.name),
            names: entries.iter().map(|(key, node)| (key.name.as_str(), node)).collect(),
            outputs: leads,
        };
        self.depth += 1;
        for (key, node) in entries {
            self.operation(key, node, &own, on_error, region);
        }
        self.depth -= 1;
    }

    fn template(&self, name: &Text) -> Option<&'a YamlNode> {
        let found = self.templates.iter().find(|(key, _)| key.name == name.text).map(|(_, node)| node);
        if found.is_none() {
            let hint = words::meant(&name.text, self.templates.iter().map(|(key, _)| key.name.as_str()));
            self.reader.say(name.span, "OF0116", format!("the diagram has no template `{}`", name.text), hint);
        }
        found
    }

    /// Slots with the operations that they stand for: a list of names, or a map.
    fn slots(&self, node: &'a YamlNode) -> Vec<(String, &'a YamlNode)> {
        match &node.what {
            NodeKind::List(items) => items.iter().filter_map(|item| Some((item.text()?.text, item))).collect(),
            _ => self.reader.entries(node, "slots").iter().map(|(key, node)| (key.name.clone(), node)).collect(),
        }
    }

    /// The target that a slot of a section is.
    pub(super) fn slot(&self, section: &MapKey, slot: &Text, place: &Place<'_>) -> Option<TargetDecl> {
        let unknown = |message: String, hint: String| {
            self.reader.say(slot.span, "OF0116", message, hint);
            None
        };
        let declared =
            place.names.get(section.name.as_str()).filter(|node| field(node, "type").as_deref() == Some("section"));
        let Some(node) = declared else {
            return unknown(format!("there is no section `{}` here", section.name), String::new());
        };
        let template = text(&field(node, "template")?, section.span);
        let NodeKind::Map(entries) = &self.template(&template)?.what else { return None };
        let of = |name: &str| entries.iter().find(|(key, _)| key.name == name).map(|(_, node)| self.slots(node));
        let (inputs, buffers) = (of("inputs").unwrap_or_default(), of("buffers").unwrap_or_default());
        let named = |slots: &[(String, &YamlNode)]| {
            let (_, node) = slots.iter().find(|(name, _)| *name == slot.text)?;
            let inner = node.text()?.text;
            Some(text(&format!("{}{}.{inner}", place.prefix, section.name), slot.span))
        };
        if let Some(buffer) = named(&buffers) {
            return Some(TargetDecl::Push(buffer));
        }
        match named(&inputs) {
            Some(op) => Some(TargetDecl::Name(op)),
            None => {
                let known: Vec<&str> = inputs.iter().chain(&buffers).map(|(name, _)| name.as_str()).collect();
                let message = format!("section `{}` has no slot `{}`", section.name, slot.text);
                unknown(message, words::meant(&slot.text, known))
            }
        }
    }
}
