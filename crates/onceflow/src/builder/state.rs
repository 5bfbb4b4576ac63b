//! State that the builders of one flow share: the graphs that are being described, innermost last, and all that they
//! need.

use super::{
    VALUE,
    next::PartOptions,
    scope::{PortHandle, Scope, ScopeSource},
};
use crate::{
    arg::Argument,
    flow::Needs,
    task::{Call, CallTarget},
};
use onceflow_core::{
    model::{self, SourceLocation, TaskSpec, graph::ERROR, graph::ModuleKind},
    payload::Payload,
};
use onceflow_engine::task::Data;
use std::{
    any::TypeId,
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// See the module.
pub(super) struct BuilderState {
    pub(super) flow: u64,
    pub(super) scopes: Vec<Scope>,
    pub(super) scopes_ever: u32,
    /// Closures that have ended, and the names of their parts, for messages about a port of theirs that is used too
    /// late.
    pub(super) closed: BTreeMap<u32, Closed>,
    pub(super) needs: Needs,
    /// The tasks that were added, with the names of their outputs: steps of one task share them.
    tasks: BTreeMap<TypeId, (Arc<TaskSpec>, Arc<[String]>)>,
}

/// A closure that has ended.
pub(super) struct Closed {
    pub(super) what: &'static str,
    pub(super) origin: SourceLocation,
    pub(super) inputs: Vec<String>,
    pub(super) modules: Vec<String>,
}

/// How a part is to be added.
pub(super) struct NewModule {
    pub(super) kind: ModuleKind,
    /// Where its name comes from, unless it was given one.
    pub(super) base: String,
    pub(super) outputs: Arc<[String]>,
    pub(super) attempt: bool,
    pub(super) origin: SourceLocation,
}

/// Names for outputs that have none.
pub(super) fn names_of(base: &str, count: usize) -> Arc<[String]> {
    super::names(base, count).into()
}

impl BuilderState {
    pub(super) fn new() -> Self {
        static FLOWS: AtomicU64 = AtomicU64::new(0);
        BuilderState {
            flow: FLOWS.fetch_add(1, Ordering::Relaxed),
            scopes: Vec::new(),
            scopes_ever: 0,
            closed: BTreeMap::new(),
            needs: Needs::default(),
            tasks: BTreeMap::new(),
        }
    }

    #[track_caller]
    pub(super) fn add_call<P>(&mut self, call: Call<P>, options: PartOptions, attempt: bool) -> Vec<PortHandle> {
        let Call { target, given, origin, .. } = call;
        let part =
            |kind, base: &str, outputs| NewModule { kind, base: base.into(), outputs, attempt, origin: origin.clone() };
        match target {
            CallTarget::Task(id, define) => {
                let (spec, outputs) = self.task(id, define);
                let module = self.add_part(part(ModuleKind::Task(spec.clone()), &spec.name, outputs), options);
                for (port, given) in spec.inputs.iter().zip(given) {
                    self.give(module, &port.name, given, &origin);
                }
                self.outputs_of(module)
            }
            CallTarget::Flow(callee) => {
                let outputs = callee.outputs.iter().map(|port| port.name.clone()).collect();
                let kind = ModuleKind::Call { flow: callee.name.clone() };
                let module = self.add_part(part(kind, &callee.name, outputs), options);
                for (port, given) in callee.inputs.iter().zip(given) {
                    self.give(module, &port.name, given, &origin);
                }
                self.needs.flow(callee);
                self.outputs_of(module)
            }
        }
    }

    /// Returns the kernel's description of a task, and its outputs.
    #[track_caller]
    fn task(&mut self, id: TypeId, define: fn() -> crate::task::Definition) -> (Arc<TaskSpec>, Arc<[String]>) {
        if let Some((spec, outputs)) = self.tasks.get(&id) {
            return (spec.clone(), outputs.clone());
        }
        let task = define();
        let spec = Arc::new(task.spec.clone());
        let outputs: Arc<[String]> = spec.outputs.iter().map(|port| port.name.clone()).collect();
        self.needs.task(task);
        self.tasks.insert(id, (spec.clone(), outputs.clone()));
        (spec, outputs)
    }

    /// Connects an input of a module to what was given to it.
    #[track_caller]
    fn give(&mut self, module: u32, input: &str, given: Argument, origin: &SourceLocation) {
        let from = match given {
            Argument::Nothing => return,
            Argument::Port(handle, ty) => self.resolve(handle, &ty),
            Argument::Constant(data, ty) => {
                let base = format!("{}_{input}", self.top().module_name(module));
                self.add_constant(&data, ty, &base, PartOptions::default(), origin.clone()).source()
            }
        };
        self.top().connect(from, module, input, origin);
    }

    pub(super) fn add_constant(
        &mut self,
        data: &Data,
        ty: model::Type,
        base: &str,
        options: PartOptions,
        origin: SourceLocation,
    ) -> PortHandle {
        let kind = ModuleKind::Constant(model::Port::new(VALUE, ty), payload(data));
        let part = NewModule { kind, base: base.into(), outputs: names_of(VALUE, 1), attempt: false, origin };
        let module = self.add_part(part, options);
        self.outputs_of(module)[0]
    }

    /// Adds a part with graphs inside, connects what it is given, and what those have captured.
    #[track_caller]
    pub(super) fn add_nested(
        &mut self,
        part: NewModule,
        options: PartOptions,
        given: Vec<(String, PortHandle, model::Type)>,
        captures: Vec<(ScopeSource, String)>,
        origin: &SourceLocation,
    ) -> Vec<PortHandle> {
        let module = self.add_part(part, options);
        for (input, handle, ty) in given {
            let from = self.resolve(handle, &ty);
            self.top().connect(from, module, &input, origin);
        }
        for (from, input) in captures {
            self.top().connect(from, module, &input, origin);
        }
        self.outputs_of(module)
    }

    /// Adds a module to the innermost graph, under a name that none of its siblings has.
    fn add_part(&mut self, part: NewModule, options: PartOptions) -> u32 {
        let NewModule { kind, base, mut outputs, attempt, origin } = part;
        if attempt {
            outputs = outputs.iter().cloned().chain([String::from(ERROR)]).collect();
        }
        assert!(
            options.at_most.is_none() || matches!(kind, ModuleKind::Each { .. }),
            "{}:{}: `at_most` is about elements; only an each has some",
            origin.file,
            origin.line
        );
        self.top().add(model::Module { name: base, kind, origin: Some(origin), attempt }, options.name, outputs)
    }

    fn outputs_of(&mut self, module: u32) -> Vec<PortHandle> {
        let (flow, top) = (self.flow, self.top());
        top.outputs_of(module).map(|source| PortHandle::new(flow, top.id(), source)).collect()
    }

    /// The graph that is being described.
    pub(super) fn top(&mut self) -> &mut Scope {
        self.scopes.last_mut().expect("a builder is inside a graph from its first moment")
    }
}

/// A constant as the kernel holds it. Files are no constants, [`Literal`](crate::value::Literal) sees to that.
fn payload(data: &Data) -> Payload {
    match data {
        Data::Bytes(bytes) => Payload::inline(bytes),
        Data::List(elements) => {
            let element = |data: &Data| (*data != Data::None).then(|| payload(data));
            Payload::List(elements.iter().map(|data| element(&data)).collect())
        }
        Data::None => Payload::inline(crate::value::NIL),
        Data::File(file) => panic!("the file {} is no constant", file.name),
    }
}
