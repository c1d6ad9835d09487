//! Language models in the files of Hugging Face: written from a run, and writing text.

use crate::common::Place;
use serde_json::Value;

fn with_run(model: &str) -> Place {
    let place = Place::new();
    place.write("text.txt", "the tree of sums is the same everywhere. ".repeat(60));
    let small = "--layers 2 --width 24 --heads 4 --context 16 --batch 8 --lr 0.01 --steps 100";
    place.ok(&format!("train {model} --data text.txt {small} --save run"));
    place
}

#[test]
fn an_exported_model_writes_the_same_text() {
    let models = [
        "gpt --tokenizer characters --dropout 0.1",
        "llama --kv-heads 2 --tokenizer characters",
        "llama --tokenizer bytes",
    ];
    for model in models {
        let place = with_run(model);
        let ran = place.ok("export --checkpoint run --to exported --max-shard-bytes 20000");
        assert!(ran.stdout.ends_with(" parameters written to exported\n"), "{}", ran.stdout);
        for flags in ["--prompt the --temperature 0", "--temperature 3 --seed 7"] {
            let write = |folder: &str| place.ok(&format!("generate --checkpoint {folder} --tokens 40 {flags}")).stdout;
            assert_eq!(write("exported"), write("run"), "{model} {flags}");
        }
        let config: Value = serde_json::from_str(&place.text("exported/config.json")).unwrap();
        let vocabulary = config["vocab_size"].as_u64().unwrap();
        let end_of_text = config["eos_token_id"].as_u64().unwrap();
        assert!(end_of_text < vocabulary && place.path("exported/model.safetensors.index.json").exists());
    }
}

#[test]
fn mistakes_are_named() {
    let place = with_run("gpt");
    place.ok("export --checkpoint run --to exported");
    assert_eq!(place.mistake("export --checkpoint run"), "export needs --to; see meshwork export --help");
    assert_eq!(
        place.mistake("export --checkpoint run --to exported"),
        "--to: exported exists already; name a new or empty folder"
    );
    assert!(place.mistake("export --checkpoint nothing --to x").starts_with("--checkpoint: nothing does not exist"));

    let tokenizer = place.text("exported/tokenizer.json");
    place.write("exported/tokenizer.json", tokenizer.replacen("\"id\"", "\"id\":1,\"was\"", 1));
    assert!(place.mistake("generate --checkpoint exported").starts_with("--checkpoint: exported/tokenizer.json"));
    std::fs::remove_file(place.path("exported/tokenizer.json")).unwrap();
    assert!(
        place
            .mistake("generate --checkpoint exported")
            .starts_with("--checkpoint: cannot read exported/tokenizer.json")
    );
    place.write("exported/tokenizer.json", r#"{ "meshwork_tokenizer": 1, "kind": "bytes" }"#);
    assert_eq!(
        place.mistake("generate --checkpoint exported"),
        "--checkpoint: exported has 257 tokens in its tokenizer.json, but its model knows 18 (vocab_size)"
    );

    place.write("exported/tokenizer.json", tokenizer);
    let config = place.text("exported/config.json");
    place.write("exported/config.json", config.replace("gelu_new", "relu"));
    assert_eq!(
        place.mistake("generate --checkpoint exported"),
        "--checkpoint: exported/config.json: activation_function is \"relu\"; supported: \"gelu_new\", \
         \"gelu_pytorch_tanh\", \"gelu\""
    );
    place.write("exported/config.json", config);
    std::fs::remove_file(place.path("exported/model.safetensors")).unwrap();
    assert_eq!(
        place.mistake("generate --checkpoint exported"),
        "--checkpoint: exported has neither model.safetensors nor model.safetensors.index.json"
    );
}
