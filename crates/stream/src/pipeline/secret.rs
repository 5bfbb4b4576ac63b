//! Texts with secrets, such as passwords and tokens: made when a sink is opened, so that no row, plan or message has them.

use std::{fmt, io::Result, sync::Arc};

/// A text that is made when it is needed. Its `Debug` does not show it.
#[derive(Clone)]
pub struct SecretText(Arc<dyn Fn() -> Result<String> + Send + Sync>);

impl SecretText {
    /// Returns the text that a function makes.
    pub fn new(make: impl Fn() -> Result<String> + Send + Sync + 'static) -> Self {
        SecretText(Arc::new(make))
    }

    /// Makes the text.
    ///
    /// # Errors
    /// If a secret is not there; the pipeline ends with this error.
    pub fn reveal(&self) -> Result<String> {
        (self.0)()
    }
}

impl From<&str> for SecretText {
    fn from(text: &str) -> Self {
        let text = text.to_owned();
        SecretText::new(move || Ok(text.clone()))
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretText(…)")
    }
}
