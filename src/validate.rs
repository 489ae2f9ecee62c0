//! Casting and validating arguments. (Interface first; see the helper's work.)

/// One way in which arguments do not fit their schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// JSON Pointer to the offending value; `""` is the arguments as a whole.
    pub pointer: String,
    /// The JSON Schema keyword that failed.
    pub keyword: String,
    /// The text shown to the model.
    pub message: String,
}
