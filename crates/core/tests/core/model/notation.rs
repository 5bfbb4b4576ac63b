//! A notation for flows, for tests only:
//!
//! ```text
//! flow main(x: int) -> (p: int) {
//!   a: task inc(i: int) -> (o: int);
//!   b: attempt task inc@2(i: int) -> (o: int) needs o of i;
//!   k: const int `3`;
//!   c: graph (x: int) -> (p: int) { x -> p; };
//!   l: loop (x: int) -> (y: int, more: bool) { .. } while more carry y > x;
//!   e: each x max 2 (x: int) -> (y: int) { .. };
//!   s: choice { small if ok (x: int) -> (p: int) { .. }; rest (x: int) -> (p: int) { .. }; };
//!   f: call other;
//!   x -> a.i; a.o -> p;
//! }
//! ```

use onceflow_core::{
    model::{
        Arm, Connection, Endpoint, Graph, Library, Module, Port, SourceLocation, TaskSpec, Type, graph::ModuleKind,
    },
    payload::Payload,
};

/// Parses all flows of a text.
pub(crate) fn library(text: &str) -> Library {
    let mut reader = Reader::of(text);
    let mut library = Library::default();
    while reader.takes("flow") {
        let name = reader.word();
        library.flows.insert(name, reader.graph());
    }
    assert!(reader.at == reader.tokens.len(), "{} comes after the last flow", reader.peek());
    library
}

struct Reader {
    /// The tokens, each with its line and column.
    tokens: Vec<(String, u32, u32)>,
    at: usize,
}

impl Reader {
    fn of(text: &str) -> Self {
        let mut tokens = Vec::new();
        for (line, text) in text.lines().enumerate() {
            let mut rest = text;
            while let Some(start) = rest.find(|c: char| !c.is_whitespace()) {
                rest = &rest[start..];
                let len = token_len(rest);
                let column = text.len() - rest.len() + 1;
                tokens.push((rest[..len].to_owned(), line as u32 + 1, column as u32));
                rest = &rest[len..];
            }
        }
        Reader { tokens, at: 0 }
    }

    fn peek(&self) -> &str {
        self.tokens.get(self.at).map_or("the end", |(token, ..)| token)
    }

    fn word(&mut self) -> String {
        self.at += 1;
        self.tokens[self.at - 1].0.trim_matches('`').to_owned()
    }

    fn takes(&mut self, token: &str) -> bool {
        let there = self.peek() == token;
        self.at += usize::from(there);
        there
    }

    fn expect(&mut self, token: &str) {
        assert!(self.takes(token), "expected {token}, found {} at {:?}", self.peek(), self.origin());
    }

    fn origin(&self) -> Option<SourceLocation> {
        let (_, line, column) = self.tokens.get(self.at)?;
        Some(SourceLocation { file: "test.flow".into(), line: *line, column: *column })
    }

    fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let mut items = vec![item(self)];
        while self.takes(",") {
            items.push(item(self));
        }
        items
    }

    fn ports(&mut self) -> Vec<Port> {
        self.expect("(");
        if self.takes(")") {
            return vec![];
        }
        let ports = self.list(|reader| {
            let name = reader.word();
            reader.expect(":");
            Port::new(name, reader.ty())
        });
        self.expect(")");
        ports
    }

    fn ty(&mut self) -> Type {
        match self.word().as_str() {
            "unit" => Type::Unit,
            "bool" => Type::Bool,
            "int" => Type::Int,
            "text" => Type::Text,
            "file" => Type::File,
            "json" => Type::Json,
            outer @ ("list" | "option") => {
                self.expect("<");
                let inner = self.ty();
                self.expect(">");
                if outer == "list" { Type::list(inner) } else { Type::option(inner) }
            }
            name => Type::Named(name.into()),
        }
    }

    fn graph(&mut self) -> Graph {
        let inputs = self.ports();
        self.expect("->");
        let mut graph = Graph { inputs, outputs: self.ports(), ..Graph::default() };
        self.expect("{");
        while !self.takes("}") {
            let origin = self.origin();
            let start = self.word();
            if self.takes(":") {
                let attempt = self.takes("attempt");
                let kind = self.kind();
                graph.modules.push(Module { name: start, kind, origin, attempt });
            } else {
                let from = self.endpoint(start);
                self.expect("->");
                let to = self.word();
                graph.connections.push(Connection { from, to: self.endpoint(to), origin });
            }
            self.expect(";");
        }
        graph
    }

    fn endpoint(&mut self, first: String) -> Endpoint {
        match self.takes(".") {
            true => Endpoint { module: Some(first), port: self.word() },
            false => Endpoint { module: None, port: first },
        }
    }

    fn kind(&mut self) -> ModuleKind {
        match self.word().as_str() {
            "task" => ModuleKind::Task(self.task().into()),
            "const" => {
                let port = Port::new("value", self.ty());
                ModuleKind::Constant(port, Payload::inline(self.word()))
            }
            "graph" => ModuleKind::Composite(self.graph()),
            "call" => ModuleKind::Call { flow: self.word() },
            "each" => {
                let over = if self.peek() == "(" { vec![] } else { self.list(Reader::word) };
                let concurrency = self.takes("max").then(|| self.word().parse().expect("a number"));
                ModuleKind::Each { body: self.graph(), over, concurrency }
            }
            "loop" => {
                let body = self.graph();
                self.expect("while");
                let condition = self.word();
                let pair = |reader: &mut Self| {
                    let output = reader.word();
                    reader.expect(">");
                    (output, reader.word())
                };
                let carried = if self.takes("carry") { self.list(pair) } else { vec![] };
                ModuleKind::Loop { body, carried, condition }
            }
            "choice" => {
                self.expect("{");
                let mut arms = Vec::new();
                while !self.takes("}") {
                    let name = self.word();
                    let guard = self.takes("if").then(|| self.word());
                    arms.push(Arm { name, guard, body: self.graph() });
                    self.expect(";");
                }
                ModuleKind::Choice { arms }
            }
            other => panic!("what is {other}, before {:?}?", self.origin()),
        }
    }

    fn task(&mut self) -> TaskSpec {
        let name = self.word();
        let version = if self.takes("@") { self.word() } else { "1".into() };
        let inputs = self.ports();
        self.expect("->");
        let mut spec = TaskSpec { version, ..TaskSpec::new(name, inputs, self.ports()) };
        let index = |ports: &[Port], name: &str| ports.iter().position(|port| port.name == name).unwrap_or(99);
        if self.takes("needs") {
            let mut depends = vec![vec![]; spec.outputs.len()];
            for (output, input) in self.list(|reader| {
                let output = reader.word();
                reader.expect("of");
                (output, reader.word())
            }) {
                depends[index(&spec.outputs, &output)].push(index(&spec.inputs, &input) as u16);
            }
            spec.depends = Some(depends);
        }
        spec
    }
}

fn token_len(text: &str) -> usize {
    if text.starts_with("->") {
        return 2;
    }
    if let Some(quoted) = text.strip_prefix('`') {
        return quoted.find('`').expect("a closing quote") + 2;
    }
    let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(text.len());
    end.max(1)
}
