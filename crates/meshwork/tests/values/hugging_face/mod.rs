//! Interchange with `transformers`: the models of `tests/golden/hugging_face`, and what is wrong with other folders.

mod files;
mod golden;
mod mistakes;
