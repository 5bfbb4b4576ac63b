//! The references of an expression: names that it uses and does not define itself.

use super::{FAMILIES, RESERVED};
use cel::{
    IdedExpr, Program,
    common::ast::{EntryExpr, Expr, IdedEntryExpr},
};
use std::ops::Range;

/// A name that an expression takes from its scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// The longest path of names: `["align", "bam"]`, also where the path goes on with `[0]` or a function.
    pub path: Vec<String>,
    /// Where in the source, in bytes.
    pub span: Range<usize>,
}

/// Returns all references, in order of appearance.
pub(super) fn of(program: &Program, source: &str) -> Vec<Reference> {
    let mut walk = ReferenceWalk { program, source, bound: vec![], found: vec![] };
    walk.expr(program.expression());
    let mut found = walk.found;
    found.sort_by_key(|found| (found.span.start, found.path.len()));
    found.dedup();
    found
}

/// Words that cannot be names anywhere in an expression.
pub const KEYWORDS: [&str; 21] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "false",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "namespace",
    "null",
    "package",
    "return",
    "true",
    "var",
    "void",
    "while",
];

/// Returns the reference, if the source is visibly nothing but one; does not parse it.
pub(super) fn plain(source: &str) -> Option<Reference> {
    let is_name = |name: &str| {
        let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        starts && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') && !KEYWORDS.contains(&name)
    };
    let path: Vec<_> = source.split('.').collect();
    let is_plain = path.iter().all(|name| is_name(name)) && !RESERVED.contains(&path[0]);
    is_plain.then(|| Reference { path: path.into_iter().map(str::to_owned).collect(), span: 0..source.len() })
}

struct ReferenceWalk<'a> {
    program: &'a Program,
    source: &'a str,
    /// Names defined by the enclosing comprehensions.
    bound: Vec<&'a str>,
    found: Vec<Reference>,
}

impl<'a> ReferenceWalk<'a> {
    fn expr(&mut self, expr: &'a IdedExpr) {
        if let Some((path, id)) = path(expr) {
            return self.reference(path, id);
        }
        match &expr.expr {
            Expr::Call(call) => {
                if let Some(target) = &call.target
                    && !is_family(target)
                {
                    self.expr(target);
                }
                call.args.iter().for_each(|arg| self.expr(arg));
            }
            Expr::Comprehension(loops) => {
                self.expr(&loops.iter_range);
                self.expr(&loops.accu_init);
                let before = self.bound.len();
                self.bound.extend([loops.iter_var.as_str(), loops.accu_var.as_str()]);
                self.bound.extend(loops.iter_var2.as_deref());
                for inner in [&loops.loop_cond, &loops.loop_step, &loops.result] {
                    self.expr(inner);
                }
                self.bound.truncate(before);
            }
            Expr::List(list) => list.elements.iter().for_each(|element| self.expr(element)),
            Expr::Map(map) => map.entries.iter().for_each(|entry| self.entry(entry)),
            Expr::Struct(structure) => structure.entries.iter().for_each(|entry| self.entry(entry)),
            Expr::Select(select) => self.expr(&select.operand),
            Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => {}
        }
    }

    fn entry(&mut self, entry: &'a IdedEntryExpr) {
        match &entry.expr {
            EntryExpr::StructField(field) => self.expr(&field.value),
            EntryExpr::MapEntry(entry) => {
                self.expr(&entry.key);
                self.expr(&entry.value);
            }
        }
    }

    fn reference(&mut self, path: Vec<&'a str>, id: u64) {
        let root = path[0];
        let known = self.bound.contains(&root) || root.starts_with('@') || RESERVED.contains(&root);
        if !known {
            let span = self.span(&path, id);
            let path = path.into_iter().map(|name| name.trim_start_matches('.').to_owned()).collect();
            self.found.push(Reference { path, span });
        }
    }

    /// Returns the span from the first character of the root to the last character of the last field.
    fn span(&self, path: &[&str], id: u64) -> Range<usize> {
        let start = self.program.source_info().offset_for(id).map_or(0, |(start, _)| start as usize);
        let start = if self.source.is_char_boundary(start) { start } else { 0 };
        let mut end = start;
        for name in path {
            let name = name.trim_start_matches('.');
            match self.source[end..].find(name) {
                Some(at) => end += at + name.len(),
                None => break,
            }
        }
        start..end
    }
}

/// Returns the names of a path, and the node of its root.
fn path(expr: &IdedExpr) -> Option<(Vec<&str>, u64)> {
    match &expr.expr {
        Expr::Ident(name) => Some((vec![name], expr.id)),
        Expr::Select(select) => {
            let (mut names, id) = path(&select.operand)?;
            names.push(&select.field);
            Some((names, id))
        }
        _ => None,
    }
}

/// The target of a call is a family of functions, not a value.
fn is_family(target: &IdedExpr) -> bool {
    matches!(&target.expr, Expr::Ident(name) if FAMILIES.contains(&name.as_str()))
}
