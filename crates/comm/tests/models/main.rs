//! Model checks of the rendezvous, which `PROTOCOL.md` describes: whole worlds under
//! [shuttle](https://docs.rs/shuttle), which tries many orders of their threads, and on plain threads, with delays.
//!
//! ```text
//! RUSTFLAGS="--cfg shuttle" cargo test -p meshwork-comm --release --test models --target-dir target/shuttle
//! cargo test -p meshwork-comm --test models
//! ```

mod explore;
mod failing;
mod random;
mod working;
