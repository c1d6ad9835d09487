//! Runs on several devices give the bits of one thread; plans come from flags and files; `explain` says what moves.

use crate::common::Place;

/// Steps over the end of an epoch: 1438 digits in batches of 500, whose last one has 438.
const RUN: &str = "--steps 4 --batch 500";

/// Layouts of the runs below, each on as many devices as it says.
const LAYOUTS: [&str; 9] = [
    "--devices cpu:4 --parallel data=2,tensor=2,zero=1",
    "--devices cpu:3",
    "--parallel data=3",
    "--devices cpu:2 --parallel zero=3",
    "--devices cpu:2 --parallel tensor=2,zero=2 --threads 2",
    "--accumulate 2",
    "--parallel data=2,accumulate=3,zero=2",
    "--parallel tensor=2 --place *.fc1.weight=tensor:split(1) --place conv?.*=replicated",
    "--parallel data=2,sequence=2 --place *.weight=data:sharded(0)",
];

#[test]
fn the_weights_do_not_depend_on_the_layout() {
    for (model, layouts) in [("lenet", &LAYOUTS[..5]), ("mlp", &LAYOUTS[5..7]), ("lenet", &LAYOUTS[5..])] {
        let place = Place::new();
        place.ok(&format!("train {model} {RUN} --threads 1 --save one --log one.jsonl"));
        for (i, layout) in layouts.iter().enumerate() {
            place.ok(&format!("train {model} {RUN} {layout} --save {i} --log {i}.jsonl"));
            for file in ["model.safetensors", "step-4/optimizer.safetensors"] {
                assert!(place.read(&format!("one/{file}")) == place.read(&format!("{i}/{file}")), "{model} {layout}");
            }
            assert_eq!(place.text("one.jsonl"), place.text(&format!("{i}.jsonl")), "{model} {layout}");
        }
    }
}

#[test]
fn a_run_goes_on_under_any_other_plan() {
    let place = Place::new();
    place.ok("train lenet --steps 5 --batch 500 --threads 1 --save one");
    place.ok("train lenet --steps 1 --batch 500 --parallel data=2,tensor=2,zero=1 --save run");
    for (steps, layout) in
        [(2, "--threads 1"), (3, "--parallel data=3,zero=3"), (4, "--devices cpu:2 --accumulate 2"), (5, "")]
    {
        let ran = place.ok(&format!("train --resume run --steps {steps} {layout}"));
        assert!(!ran.stderr.contains("note"), "{}", ran.stderr);
    }
    for file in ["model.safetensors", "step-5/optimizer.safetensors"] {
        assert!(place.read(&format!("one/{file}")) == place.read(&format!("run/{file}")), "{file}");
    }
    assert!(!place.text("run/step-5/manifest.json").contains("zero"), "a layout is not recorded");
}

#[test]
fn a_line_says_what_each_device_has() {
    let place = Place::new();
    let line = |flags: &str| {
        let text = place.ok(&format!("train mlp --steps 1 --batch 64 {flags}")).stdout;
        text.lines().nth(1).unwrap_or_default().to_string()
    };
    // 203,530 parameters in f32, and two numbers for each of them.
    assert_eq!(
        line("--parallel data=2"),
        "data=2, zero=0 on 2 devices: each has 795.0 KiB of parameters, 795.0 KiB of gradients, 1.55 MiB of optimizer state"
    );
    // Matrices of 784 and of 256 columns, and vectors of 256 and of 10 elements: all are even.
    assert_eq!(
        line("--parallel data=2,zero=1 --optimizer sgd --momentum 0.9"),
        "data=2, zero=1 on 2 devices: each has 795.0 KiB of parameters, 397.5 KiB of gradients, 397.5 KiB of optimizer state"
    );
    assert_eq!(
        line("--parallel data=2,zero=3"),
        "data=2, zero=3 on 2 devices: each has 397.5 KiB of parameters, 397.5 KiB of gradients, 795.0 KiB of optimizer state"
    );
    assert_eq!(
        line("--accumulate 2 --optimizer sgd"),
        "data=1, accumulate=2, zero=0 on 1 device: it has 795.0 KiB of parameters, 795.0 KiB of gradients, 0 B of optimizer state"
    );
    let text = place.ok("train mlp --steps 1 --batch 64 --devices cpu:2 --threads 1").stdout;
    assert!(text.lines().next().unwrap().ends_with("batches of 64, 2 devices of 1 thread each"), "{text}");
}

#[test]
fn a_file_has_plans_and_placements() {
    let place = Place::new();
    let line = |file: &str, flags: &str| {
        place.write("run.toml", file);
        let text = place.ok(&format!("train mlp --config run.toml {flags}")).stdout;
        text.lines().nth(1).unwrap_or_default().to_string()
    };
    let head = "steps = 1\nbatch = 64\n";
    let as_text = line(&format!("{head}parallel = \"data=2,tensor=2,zero=1\"\n"), "");
    assert!(as_text.starts_with("data=2, tensor=2, zero=1 on 4 devices: each has"), "{as_text}");
    let table = "[parallel]\ndata = 2\ntensor = 2\nzero = 1\n";
    assert_eq!(line(&format!("{head}{table}"), ""), as_text);
    assert!(line(&format!("{head}{table}"), "--parallel data=3").starts_with("data=3, zero=0 on 3 devices"));
    let whole = format!("{head}{table}[place]\n\"*\" = \"replicated\"\n");
    let whole_has = line(&whole, "");
    assert!(whole_has.contains("each has 795.0 KiB of parameters"), "{whole_has}");
    // Rules of the command line come first.
    let cut = line(&whole, "--place *.fc1.weight=tensor:split(0)");
    assert!(cut.contains("each has 403.0 KiB of parameters"), "{cut}");
    let in_file = format!("{head}{table}[place]\n\"*.fc1.weight\" = {{ tensor = \"split(0)\" }}\n\"*\" = {{}}\n");
    assert_eq!(line(&in_file, ""), cut);
}

#[test]
fn mistakes_in_plans_are_named() {
    let place = Place::new();
    let known = "known are data, tensor, zero, sequence, accumulate";
    let cases = [
        (
            "--parallel data=2,tenser=2",
            format!("--parallel: \"tenser=2\" in the plan \"data=2,tenser=2\": {known} (did you mean tensor?)"),
        ),
        ("--parallel zero=4", "--parallel: \"zero=4\" in the plan \"zero=4\": zero is 0, 1, 2 or 3".to_string()),
        (
            "--devices cpu:0,0,0 --parallel data=2,tensor=2",
            "--parallel: the plan needs 4 devices (data=2, sequence=1, tensor=2), and there are 3: choose axes whose \
             product is 3, or 4 devices"
                .to_string(),
        ),
        (
            "--devices cpu:0,0,0 --parallel tensor=2",
            "--parallel: the plan needs 2 devices (data=1, sequence=1, tensor=2), and there are 3: 3 is no multiple of 2"
                .to_string(),
        ),
        ("--parallel data=2000", "--parallel: 2000 CPU devices: there can be 1 to 1024, also more than there are cores".to_string()),
        (
            "--parallel data=99999999999,tensor=99999999999",
            "--parallel: 18446744073709551615 CPU devices: there can be 1 to 1024, also more than there are cores".to_string(),
        ),
        ("--accumulate 0", "--accumulate: \"0\" is not a whole number of at least 1, such as 64".to_string()),
        (
            "--parallel accumulate=2 --accumulate 4",
            "--accumulate 4: --parallel says accumulate=2; leave one of them out".to_string(),
        ),
        ("--batch 8 --accumulate 9", "--accumulate: a batch of 8 samples has no 9 parts".to_string()),
        (
            "--parallel tensor=2 --place fc1.weight",
            "--place: the rule \"fc1.weight\": it must be NAME=AXIS:PLACEMENT, such as *.fc1.weight=tensor:split(0)"
                .to_string(),
        ),
        (
            "--parallel tensor=2 --place fc1.weight=tenser:split(0)",
            "--place: the rule \"fc1.weight=tenser:split(0)\": there is no axis \"tenser\" (did you mean tensor?); \
             known are data, sequence, tensor"
                .to_string(),
        ),
        (
            "--parallel tensor=2 --place fc1.wieght=tensor:split(0)",
            "--place: no parameter is called \"fc1.wieght\" (did you mean fc1.weight?)".to_string(),
        ),
        (
            "--parallel tensor=2 --place fc1.weight=tensor:split(2)",
            "--place: fc1.weight [128, 800] cannot be split(2) along tensor: it has 2 dimensions".to_string(),
        ),
        ("--devices gpu:2", "--devices: \"gpu:2\" is not cpu:N, the cores divided among N devices, or the cores of each device, such as cpu:0-1,2-3".to_string()),
    ];
    for (flags, expected) in cases {
        assert_eq!(place.mistake(&format!("train lenet --steps 1 {flags}")), expected, "{flags}");
    }
    let line = place.mistake("explain lenet --parallel zeros=1");
    assert_eq!(line, format!("--parallel: \"zeros=1\" in the plan \"zeros=1\": {known} (did you mean zero?)"));
    let line = place.mistake("bench train lenet --parallel tensor=2 --place x=tensor:split(0)");
    assert_eq!(line, "--place: no parameter is called \"x\"");
    place.write("run.toml", "steps = 1\n[parallel]\ntenser = 2\n");
    let line = place.mistake("train lenet --config run.toml");
    assert_eq!(line, "run.toml, line 3: there is no key \"tenser\" in [parallel] (did you mean tensor?)");
}

#[test]
fn what_of_a_plan_has_no_effect_is_warned_about() {
    let place = Place::new();
    let warned = |flags: &str| {
        let text = place.ok(&format!("train mlp --steps 1 {flags}")).stderr;
        let lines = text.lines().filter_map(|line| line.strip_prefix("warning: "));
        lines.map(String::from).collect::<Vec<_>>()
    };
    assert!(warned("--parallel data=2,tensor=2,zero=1").is_empty());
    let cut = |axis: &str| {
        format!(
            "--parallel {axis}=2: no parameter is cut along {axis}, so its devices all compute the same; \
             --place \"NAME={axis}:split(0)\" cuts one"
        )
    };
    assert_eq!(warned("--parallel tensor=2 --place *=replicated"), [cut("tensor")]);
    assert_eq!(warned("--parallel sequence=2"), [cut("sequence")]);
    assert!(warned("--parallel sequence=2 --place fc1.weight=sequence:split(0)").is_empty());
    assert_eq!(
        warned("--parallel zero=2"),
        ["--parallel zero=2 has no effect with data=1: nothing is there to be divided"]
    );
    assert_eq!(
        warned("--batch 8 --parallel data=3,accumulate=2"),
        ["a batch of 8 is summed in 4 blocks, and is divided between them only: of 6 parts, 2 have nothing to do; a \
          larger --batch has more"]
    );
}

#[test]
fn what_moves_is_explained() {
    let place = Place::new();
    let text = place.ok("explain mlp --batch 64 --optimizer sgd --parallel data=2").stdout;
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "one step of mlp with sgd, batch 64, 203530 parameters");
    assert!(lines[1].starts_with("mesh data=2, zero=0 on 2 devices"), "{text}");
    let words = |start: &str| -> Vec<String> {
        let line = lines.iter().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{start} in\n{text}"));
        line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(String::from).collect()
    };
    assert_eq!(words("fc1.weight"), ["fc1.weight", "f32[256, 784]", "replicated", "as it"]);
    // Half of the images comes from the first device, which has them.
    let bytes = 32 * 784 * 4 / 1024;
    let scattered = words("scatter data");
    assert_eq!(scattered[1..3], ["1".to_string(), format!("{bytes}.0 KiB")], "{text}");
    assert!(scattered.iter().any(|cell| cell.contains("it comes from outside of the mesh")), "{text}");
    let merged = lines.iter().filter(|line| line.contains("a sum over samples (dot) is cut along data")).count();
    assert_eq!(merged, 2, "the gradients of both weights are merged\n{text}");
    assert!(
        lines.iter().any(|line| line.contains("like fc1.weight") && line.contains("data: partial(sum) → ")),
        "{text}"
    );

    // The totals are those of the lines.
    let number = |cell: &String| cell.parse::<usize>().unwrap();
    let at = |head: &str| lines.iter().position(|line| line.starts_with(head)).unwrap();
    let (first, last) = (at("total "), at("all  "));
    let counts = lines[first + 1..last].iter().map(|line| {
        number(&line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).nth(1).unwrap().to_string())
    });
    assert_eq!(counts.sum::<usize>(), number(&words("all  ")[1]), "{text}");

    assert!(text.contains("of the programs run on cpu:0, in this order:") && text.contains("MFLOP a sample"), "{text}");
    let memory = words("cpu:1");
    assert_eq!(memory[..5], ["cpu:1", "795.0 KiB", "795.0 KiB", "0 B", "1.55 MiB"].map(String::from), "{text}");

    // Four devices reduce and gather: each receives three quarters of the gradient twice.
    let text = place.ok("explain mlp --batch 64 --optimizer sgd --parallel data=4").stdout;
    let line = text.lines().find(|line| line.contains("like fc1.weight") && line.contains("partial(sum)")).unwrap();
    assert!(line.contains(&format!("{:.2} MiB", f64::from(4 * 2 * 3 * 4 * 256 * 784 / 4) / 1_048_576.0)), "{text}");

    let text = place.ok("explain mlp --batch 64 --parallel data=2,zero=3 --accumulate 2").stdout;
    assert!(text.contains("sharded(") && text.contains("it is stored in parts; "), "{text}");
    let inside = text.lines().filter(|line| line.contains("_scatter") || line.contains("all_"));
    assert!(inside.clone().count() > 0 && inside.clone().all(|line| !line.contains("accumulate:")), "{text}");
}

#[test]
fn a_run_on_a_mesh_can_be_traced_and_watched() {
    let place = Place::new();
    let ran = place.ok("train mlp --steps 3 --batch 64 --parallel data=2 --trace run.json --top --threads 1");
    assert!(ran.stdout.contains("timeline in run.json"), "{}", ran.stdout);
    let drawn = place.ok("trace run.json").stdout;
    assert!(drawn.contains("cpu:0") && drawn.contains("cpu:1"), "{drawn}");
}
