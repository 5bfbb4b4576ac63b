//! The types of a flow file: `list<file>`, `int?`, `{ id: text, r1: file }`, `enum<wgs, rna>`.

use crate::{
    limits::TYPE_DEPTH_MAX,
    source::Text,
    syntax::{NodeKind, YamlNode, fields::FieldReader},
    words,
};
use onceflow_core::model::Type;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A declared type: the kernel's types, and the words that an enum allows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TypeDecl {
    /// A type that is not composed of others.
    Plain(Type),
    /// One of these words; text for the kernel.
    Enum(Vec<String>),
    /// A list.
    List(Box<TypeDecl>),
    /// A value or none.
    Option(Box<TypeDecl>),
    /// Named fields.
    Record(BTreeMap<String, TypeDecl>),
}

impl TypeDecl {
    /// The placeholder for a type that could not be read: it is compatible with everything, so that only the first
    /// problem is reported.
    pub(crate) const UNCLEAR: TypeDecl = TypeDecl::Plain(Type::Json);

    /// Returns the kernel's type.
    pub fn ty(&self) -> Type {
        match self {
            TypeDecl::Plain(ty) => ty.clone(),
            TypeDecl::Enum(_) => Type::Text,
            TypeDecl::List(inner) => Type::list(inner.ty()),
            TypeDecl::Option(inner) => Type::option(inner.ty()),
            TypeDecl::Record(fields) => {
                Type::Record(fields.iter().map(|(name, shape)| (name.clone(), shape.ty())).collect())
            }
        }
    }

    /// Returns the type without the option around it.
    pub fn required(&self) -> &TypeDecl {
        if let TypeDecl::Option(inner) = self { inner } else { self }
    }

    /// Wraps the type in an option, unless it is one.
    pub(crate) fn optional(self) -> TypeDecl {
        if matches!(self, TypeDecl::Option(_)) { self } else { TypeDecl::Option(Box::new(self)) }
    }
}

/// The plain types and their names.
const PLAIN: &[(&str, Type)] = &[
    ("file", Type::File),
    ("dir", Type::Directory),
    ("text", Type::Text),
    ("int", Type::Int),
    ("float", Type::Float),
    ("bool", Type::Bool),
    ("bytes", Type::Bytes),
    ("json", Type::Json),
    ("unit", Type::Unit),
];

/// Words of other languages for these types.
const OTHERS: &[(&str, &str)] = &[
    ("string", "text"),
    ("str", "text"),
    ("directory", "dir"),
    ("folder", "dir"),
    ("path", "file"),
    ("integer", "int"),
    ("number", "float"),
    ("double", "float"),
    ("boolean", "bool"),
    ("array", "list<…>"),
    ("list", "list<…>"),
    ("object", "json"),
    ("map", "json"),
    ("any", "json"),
];

/// The hint for an invalid type.
const RULE: &str =
    "types are `file dir text int float bool bytes json unit`, `list<T>`, `T?`, `{ a: T, b: T }`, `enum<a, b>`";

/// Reads a type from a node; `None` after reporting its problem.
pub(crate) fn read(reader: FieldReader<'_>, node: &YamlNode) -> Option<TypeDecl> {
    match &node.what {
        NodeKind::Map(entries) => match entries.as_slice() {
            [(key, inner)] if key.name == "list" => Some(TypeDecl::List(Box::new(read(reader, inner)?))),
            [(key, inner)] if key.name == "option" => Some(read(reader, inner)?.optional()),
            _ => {
                let mut fields = BTreeMap::new();
                for (key, inner) in entries {
                    reader.member(&key.name, key.span, "a field");
                    fields.insert(key.name.clone(), read(reader, inner)?);
                }
                Some(TypeDecl::Record(fields))
            }
        },
        _ => read_text(reader, &reader.text(node, "a type")?),
    }
}

/// Reads a type from a text; `None` after reporting its problem.
pub(crate) fn read_text(reader: FieldReader<'_>, text: &Text) -> Option<TypeDecl> {
    match parse(&text.text) {
        Ok(shape) => Some(shape),
        Err(TypeError { message, at, hint }) => {
            let span = if at < text.text.len() { reader.source.inside(text, at..text.text.len()) } else { text.span };
            reader.say(span, "OF0110", message, hint);
            None
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
struct TypeError {
    message: String,
    at: usize,
    hint: String,
}

fn parse(text: &str) -> Result<TypeDecl, TypeError> {
    let mut parser = Parser { text, at: 0 };
    let shape = parser.shape(0)?;
    match parser.peek() {
        None => Ok(shape),
        Some(_) => Err(parser.wrong(format!("`{text}` is not a type"), RULE)),
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl Parser<'_> {
    fn wrong(&self, message: impl Into<String>, hint: impl Into<String>) -> TypeError {
        TypeError { message: message.into(), at: self.at, hint: hint.into() }
    }

    fn peek(&mut self) -> Option<char> {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
        self.text[self.at..].chars().next()
    }

    fn eat(&mut self, wanted: char) -> bool {
        let is_next = self.peek() == Some(wanted);
        self.at += if is_next { wanted.len_utf8() } else { 0 };
        is_next
    }

    fn expect(&mut self, wanted: char) -> Result<(), TypeError> {
        match self.eat(wanted) {
            true => Ok(()),
            false => Err(self.wrong(format!("`{}` is not a type: `{wanted}` is missing", self.text), RULE)),
        }
    }

    fn word(&mut self) -> &str {
        self.peek();
        let rest = &self.text[self.at..];
        let len = rest.find(|c: char| !c.is_alphanumeric() && c != '_' && c != '-').unwrap_or(rest.len());
        self.at += len;
        &rest[..len]
    }

    fn shape(&mut self, depth: usize) -> Result<TypeDecl, TypeError> {
        if depth > TYPE_DEPTH_MAX {
            return Err(self.wrong(format!("types are nested more than {TYPE_DEPTH_MAX} deep"), ""));
        }
        let mut shape = self.inner(depth)?;
        while self.eat('?') {
            shape = shape.optional();
        }
        Ok(shape)
    }

    fn inner(&mut self, depth: usize) -> Result<TypeDecl, TypeError> {
        if self.eat('{') {
            return self.record(depth);
        }
        self.peek();
        let start = self.at;
        let word = self.word().to_owned();
        if let Some((_, ty)) = PLAIN.iter().find(|(name, _)| *name == word) {
            return Ok(TypeDecl::Plain(ty.clone()));
        }
        if matches!(word.as_str(), "list" | "option" | "enum") && self.eat('<') {
            let shape = match word.as_str() {
                "list" => TypeDecl::List(Box::new(self.shape(depth + 1)?)),
                "option" => self.shape(depth + 1)?.optional(),
                _ => TypeDecl::Enum(self.words()?),
            };
            self.expect('>')?;
            return Ok(shape);
        }
        self.at = start;
        let known = PLAIN.iter().map(|(name, _)| *name).chain(["list", "option", "enum"]);
        let other = OTHERS.iter().find(|(name, _)| *name == word.to_lowercase());
        let hint = match other {
            Some((_, ours)) => format!("here it is called `{ours}`"),
            None => match words::meant(&word, known) {
                meant if meant.starts_with("did") => meant,
                _ => RULE.to_owned(),
            },
        };
        let shown = if word.is_empty() { self.text } else { &word };
        Err(self.wrong(format!("`{shown}` is not a type"), hint))
    }

    fn words(&mut self) -> Result<Vec<String>, TypeError> {
        let mut words = Vec::new();
        loop {
            let word = self.word().to_owned();
            if word.is_empty() || words.contains(&word) {
                return Err(self.wrong("an enum is a list of different words: `enum<a, b>`", ""));
            }
            words.push(word);
            if !self.eat(',') {
                return Ok(words);
            }
        }
    }

    fn record(&mut self, depth: usize) -> Result<TypeDecl, TypeError> {
        let mut fields = BTreeMap::new();
        while !self.eat('}') {
            self.peek();
            let start = self.at;
            let name = self.word().to_owned();
            if let Some(why) = words::bad_member(&name) {
                self.at = start;
                return Err(self.wrong(format!("`{name}` cannot be the name of a field"), why));
            }
            self.expect(':')?;
            let shape = self.shape(depth + 1)?;
            if fields.insert(name.clone(), shape).is_some() {
                self.at = start;
                return Err(self.wrong(format!("the field `{name}` is here twice"), ""));
            }
            if !self.eat(',') {
                self.expect('}')?;
                break;
            }
        }
        Ok(TypeDecl::Record(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_read_as_the_kernel_writes_them() {
        for text in [
            "file",
            "list<file>",
            "list<list<int>>",
            "option<text>",
            "{ a: int, b: list<file> }",
            "list<{ id: text, r1: file, r2: option<file> }>",
            "json",
            "unit",
        ] {
            assert_eq!(parse(text).map(|shape| shape.ty().to_string()).as_deref(), Ok(text));
        }
        for (text, ty) in [
            ("int?", "option<int>"),
            ("int??", "option<int>"),
            ("list< file? > ?", "option<list<option<file>>>"),
            ("enum<a, b-c, 3>", "text"),
            ("{a:int,}", "{ a: int }"),
        ] {
            assert_eq!(parse(text).map(|shape| shape.ty().to_string()).as_deref(), Ok(ty), "{text}");
        }
    }

    #[test]
    fn an_unknown_type_name_gets_a_suggestion() {
        for (text, hint) in [
            ("string", "here it is called `text`"),
            ("flie", "did you mean `file`?"),
            ("list<fil>", "did you mean `file`?"),
            ("list", "here it is called `list<…>`"),
            ("", RULE),
            ("int int", RULE),
        ] {
            assert_eq!(parse(text).map_err(|wrong| wrong.hint), Err(hint.to_owned()), "{text}");
        }
        for text in
            ["list<int", "{ a int }", "{ a: int, a: int }", "enum<>", "enum<a, a>", "{ 1: int }", &"list<".repeat(50)]
        {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
