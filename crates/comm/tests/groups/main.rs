//! Groups of ranks that are threads: what collectives give, and what becomes of mistakes.

mod collectives;
mod mistakes;
