//! Renders a template as one text, once values are known.

use crate::{
    action::{Template, TemplatePart},
    codes,
    expr::{self, Bindings},
    job::uncomputed,
    shell,
};
use onceflow_engine::task::Failure;
use std::path::Path;

/// Returns the text, with values as they would appear inside double quotes of a command.
pub(crate) fn text(template: &Template, scope: &Bindings, base: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    for part in &template.0 {
        match part {
            TemplatePart::Text(literal) => text.push_str(literal),
            TemplatePart::Hole(source) => {
                let value = expr::eval(source, scope).map_err(|error| uncomputed(&error))?;
                let value = shell::text_of(&value, base).map_err(|unfit| {
                    codes::failure(codes::UNFIT, format!("`{source}` cannot be part of a text: {}", unfit.0)).finally()
                })?;
                text.push_str(&value);
            }
        }
    }
    Ok(text)
}
