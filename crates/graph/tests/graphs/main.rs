//! Graphs: operations, and what each pass does with them.

mod attention;
mod passes;
mod regions;
