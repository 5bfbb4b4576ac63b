//! State that a task takes from the program it runs in, beside its inputs.

use super::{Failure, Step};
use std::{fmt, ops::Deref, sync::Arc};

/// Something of the program's own that a task works with: a pool of connections, a client, settings. Given to the
/// engine once, and found by its type.
///
/// ```
/// use onceflow::prelude::*;
///
/// struct Prices {
///     cents: std::collections::BTreeMap<String, u64>,
/// }
///
/// #[task]
/// async fn price(prices: State<Prices>, item: String) -> Result<u64, anyhow::Error> {
///     prices.cents.get(&item).copied().ok_or_else(|| anyhow::anyhow!("no price for {item}"))
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onceflow::Error> {
/// let flow = Flow::new("price", ["item"], ["cents"], |f, item: Port<String>| f.add(price(item)));
/// let engine = Engine::builder().state(Prices { cents: [("lamp".into(), 1299)].into() }).in_memory();
/// assert_eq!(engine.run(&flow, "lamp".into()).await?, 1299);
/// # Ok(()) }
/// ```
///
/// An engine that works on a flow and lacks what one of its tasks takes refuses the flow when it is started or offered,
/// before anything runs, naming the task and the type. It is no input: it is not stored, and what runs again does not
/// depend on it. Parameters of this type stand before the inputs.
pub struct State<T>(pub Arc<T>);

impl<T> Deref for State<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> Clone for State<T> {
    fn clone(&self) -> Self {
        State(self.0.clone())
    }
}

impl<T: fmt::Debug> fmt::Debug for State<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("State").field(&self.0).finish()
    }
}

/// Returns the engine's state of this type, for a body that takes it. An engine without it has refused the task.
#[doc(hidden)]
pub fn state<T: Send + Sync + 'static>(step: &Step) -> Result<State<T>, Failure> {
    let missing = || Failure::new(format!("there is no `State<{}>` here", std::any::type_name::<T>())).finally();
    step.resource().map(State).ok_or_else(missing)
}
