//! `Debug` for error types.

/// `unwrap()`, and a `main` that returns an error, print it with `Debug`. What to do next is in its
/// text.
macro_rules! debug_is_display {
    ($($error:ty),+) => {$(
        impl std::fmt::Debug for $error {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(self, formatter)
            }
        }
    )+};
}
pub(crate) use debug_is_display;
