//! Wrong.
