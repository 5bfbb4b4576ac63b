//! Known bugs that can be switched on, one at a time, so that the simulator can show that it would detect them. Without
//! the feature `hazards` none can be switched on, and the check costs nothing.

#[cfg(feature = "hazards")]
thread_local! {
    static ON: std::cell::Cell<Option<&'static str>> = const { std::cell::Cell::new(None) };
    static NOTED: std::cell::RefCell<std::collections::BTreeMap<Vec<u8>, u64>> = std::cell::RefCell::default();
}

/// Switches a bug on for this thread, or all of them off.
#[cfg(feature = "hazards")]
pub fn switch(name: Option<&'static str>) {
    ON.with(|on| on.set(name));
    NOTED.with(|noted| noted.borrow_mut().clear());
}

/// Records a number outside of any commit, for bugs that need one; the first number recorded at a place stays.
#[cfg(feature = "hazards")]
pub fn note(place: &[u8], number: u64) {
    NOTED.with(|noted| *noted.borrow_mut().entry(place.to_vec()).or_insert(number));
}

/// Returns the number recorded at a place.
#[cfg(feature = "hazards")]
pub fn noted(place: &[u8]) -> Option<u64> {
    NOTED.with(|noted| noted.borrow().get(place).copied())
}

/// Records nothing, without the feature `hazards`.
#[cfg(not(feature = "hazards"))]
#[inline(always)]
pub const fn note(_: &[u8], _: u64) {}

/// Returns `None`, without the feature `hazards`.
#[cfg(not(feature = "hazards"))]
#[inline(always)]
pub const fn noted(_: &[u8]) -> Option<u64> {
    None
}

/// The bug is switched on for this thread.
#[cfg(feature = "hazards")]
pub fn is_on(name: &str) -> bool {
    ON.with(std::cell::Cell::get) == Some(name)
}

/// Always false, without the feature `hazards`.
#[cfg(not(feature = "hazards"))]
#[inline(always)]
pub const fn is_on(_: &str) -> bool {
    false
}
