//! Model checks of the queue protocol, which `PROTOCOL.md` describes.
//!
//! The same models run under [loom](https://docs.rs/loom), which tries every order of their steps up to a number of
//! preemptions and every value that a relaxed load may see; under [shuttle](https://docs.rs/shuttle), which tries many
//! orders at random, also of larger models; and on plain threads, where the models are larger still:
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p meshwork-queue --release --test models --target-dir target/loom
//! RUSTFLAGS="--cfg shuttle" cargo test -p meshwork-queue --release --test models --target-dir target/shuttle
//! cargo test -p meshwork-queue --test models
//! ```

mod explore;
#[cfg(not(loom))]
mod random;
mod small;
