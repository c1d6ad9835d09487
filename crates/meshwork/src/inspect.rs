//! Looking inside: `MESHWORK_PRINT=record,split,piece,simplify,fuse,join,order,epilogue,chain,program` prints what each pass made, to
//! standard error, each time something new is compiled; `all` prints everything.

use meshwork_graph::Graph;
use meshwork_graph::program::Program;
use std::sync::OnceLock;

/// The names that `MESHWORK_PRINT` knows.
const STAGES: [&str; 12] = [
    "differentiate",
    "record",
    "split",
    "piece",
    "simplify",
    "fuse",
    "join",
    "order",
    "epilogue",
    "chain",
    "program",
    "all",
];

fn wanted(stage: &str) -> bool {
    static WANTED: OnceLock<Vec<String>> = OnceLock::new();
    let names = WANTED.get_or_init(|| {
        let text = std::env::var("MESHWORK_PRINT").unwrap_or_default();
        let names: Vec<String> = text.split(',').map(|s| s.trim().to_string()).filter(|s| !s.is_empty()).collect();
        for name in &names {
            if !STAGES.contains(&name.as_str()) {
                eprintln!("MESHWORK_PRINT: there is no pass {name:?}; known are {}", STAGES.join(", "));
            }
        }
        names
    });
    names.iter().any(|n| n == stage || n == "all")
}

pub(crate) fn pass(name: &str, graph: &Graph) {
    if wanted(name) {
        eprintln!("--- {name}\n{graph}");
    }
}

pub(crate) fn program(program: &Program) {
    if wanted("program") {
        eprintln!("--- program\n{program}");
    }
}
