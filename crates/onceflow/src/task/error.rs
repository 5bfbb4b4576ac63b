//! Errors that tell the engine more than what went wrong: that no other attempt would help, that nothing was done.
//!
//! The mark is an error of its own, one below the marked one in the chain of causes, so that it survives whatever wraps
//! the error on its way out: `?` into `anyhow::Error`, a context, an enum with `#[source]`.

use onceflow_engine::task::Failure;
use std::{error::Error, fmt};

type BoxError = Box<dyn Error + Send + Sync>;

/// An error with a mark; made by [`fatal`] and [`not_done`].
#[derive(Debug)]
pub struct Marked(Mark);

/// This error is final: the step fails now, whatever attempts are left.
///
/// ```
/// use onceflow::{fatal, task};
///
/// #[task(retry(attempts = 5))]
/// fn parse(text: String) -> Result<u64, anyhow::Error> {
///     Ok(text.parse().map_err(fatal)?) // the text will not get better
/// }
/// ```
pub fn fatal(error: impl Into<BoxError>) -> Marked {
    Marked(Mark { is_final: true, not_done: false, of: error.into() })
}

/// Nothing was done: even a task that is `at_most_once` may be tried again.
///
/// ```
/// # use onceflow::{not_done, task};
/// # fn connect() -> Result<(), std::io::Error> { Ok(()) }
/// #[task(effect = at_most_once, retry(attempts = 3))]
/// fn launch(rocket: String) -> Result<(), anyhow::Error> {
///     connect().map_err(not_done)?; // the rocket is still there
///     // ..
///     Ok(())
/// }
/// ```
pub fn not_done(error: impl Into<BoxError>) -> Marked {
    Marked(Mark { is_final: false, not_done: true, of: error.into() })
}

impl fmt::Display for Marked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.of.fmt(f)
    }
}

impl Error for Marked {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.0)
    }
}

/// The mark in the chain of causes below a marked error; it is not shown.
#[derive(Debug)]
struct Mark {
    is_final: bool,
    not_done: bool,
    of: BoxError,
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_final { "this is final" } else { "nothing was done" })
    }
}

impl Error for Mark {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.of.source()
    }
}

/// The failure that an error is: its chain of causes without the marks, and what the marks say.
pub fn failure(error: impl Into<BoxError>) -> Failure {
    let error = error.into();
    let mut failure = Failure { causes: Vec::new(), is_final: false, not_done: false };
    let mut next: Option<&(dyn Error + 'static)> = Some(&*error);
    while let Some(error) = next {
        match error.downcast_ref::<Mark>() {
            Some(mark) => {
                failure.is_final |= mark.is_final;
                failure.not_done |= mark.not_done;
            }
            None => failure.causes.push(error.to_string()),
        }
        next = error.source();
    }
    failure
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context as _;

    fn chain(failure: &Failure) -> String {
        let marks = [(failure.is_final, " final"), (failure.not_done, " not done")];
        let marks: String = marks.iter().filter(|(is, _)| *is).map(|(_, mark)| *mark).collect();
        format!("{}{marks}", failure.causes.join(" < "))
    }

    #[test]
    fn the_whole_chain_of_causes_is_told() {
        let error = anyhow::anyhow!("disk full").context("cannot write").context("cannot save");
        assert_eq!(chain(&failure(error)), "cannot save < cannot write < disk full");
        assert_eq!(chain(&failure("just text")), "just text");
    }

    #[test]
    fn a_mark_survives_wrapping_and_does_not_show() {
        let cause = || anyhow::anyhow!("expired").context("card declined");
        assert_eq!(chain(&failure(fatal(cause()))), "card declined < expired final");
        assert_eq!(chain(&failure(not_done(cause()))), "card declined < expired not done");
        let wrapped = Err::<(), _>(fatal(cause())).context("cannot charge").unwrap_err();
        assert_eq!(chain(&failure(wrapped)), "cannot charge < card declined < expired final");
        let question_mark = || -> anyhow::Result<()> { Err(fatal("no"))? };
        assert_eq!(chain(&failure(question_mark().unwrap_err())), "no final");
        assert_eq!(chain(&failure(fatal(not_done("no")))), "no final not done");
        let error = Err::<(), _>(fatal(not_done(cause()))).context("outer").unwrap_err();
        assert_eq!(chain(&failure(error)), "outer < card declined < expired final not done");
    }
}
