//! Known mistakes that can be switched on, one at a time, so that the simulator can show that it would notice them. Without
//! the feature `hazards` none can be, and asking costs nothing.

#[cfg(feature = "hazards")]
thread_local! {
    static ON: std::cell::Cell<Option<&'static str>> = const { std::cell::Cell::new(None) };
}

/// Switches a mistake on for this thread, or all off.
#[cfg(feature = "hazards")]
pub fn switch(name: Option<&'static str>) {
    ON.with(|on| on.set(name));
}

/// Whether this mistake is made.
#[cfg(feature = "hazards")]
pub fn is_on(name: &str) -> bool {
    ON.with(std::cell::Cell::get) == Some(name)
}

/// Whether this mistake is made: never, without the feature `hazards`.
#[cfg(not(feature = "hazards"))]
#[inline(always)]
pub const fn is_on(_: &str) -> bool {
    false
}
