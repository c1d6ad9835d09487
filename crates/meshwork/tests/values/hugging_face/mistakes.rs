//! Folders that cannot be read, models that cannot be saved: each says what is wrong, where, and what would be right.

use super::files::{copy, edit, golden, weights};
use meshwork::Tensor;
use meshwork::checkpoint::save_weights;
use meshwork::hugging_face::{SaveOptions, load, load_config, save};
use meshwork::nn::{ActivationKind, Module, NormKind, Positions, Transformer, TransformerConfig};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A copy of a golden model that can be spoilt.
struct Spoilt {
    folder: TempDir,
}

impl Spoilt {
    fn new(model: &str) -> Spoilt {
        let folder = tempfile::tempdir().unwrap();
        copy(model, folder.path());
        Spoilt { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// What loading says, with the folder left out.
    #[track_caller]
    fn said(&self) -> String {
        let said = load(self.folder.path()).expect_err("something is wrong").to_string();
        said.replace(&format!("{}/", self.folder.path().display()), "")
            .replace(&self.folder.path().display().to_string(), "DIR")
    }

    fn change_weights(&self, change: impl FnOnce(&mut BTreeMap<String, Tensor>)) {
        let mut tensors = weights(self.folder.path());
        change(&mut tensors);
        save_weights(self.path("model.safetensors"), &tensors.into_iter().collect::<Vec<_>>()).unwrap();
    }

    fn change_index(&self, change: impl FnOnce(&mut Value)) {
        edit(&self.path("model.safetensors.index.json"), change);
    }
}

/// What is said about a golden model whose `config.json` has another value (null: none) for a key.
#[track_caller]
fn with_key(model: &str, key: &str, value: Value) -> String {
    let spoilt = Spoilt::new(model);
    edit(&spoilt.path("config.json"), |config| config[key] = value);
    spoilt.said()
}

fn zeros(shape: &[usize]) -> Tensor {
    Tensor::from_slice(&vec![0.0_f32; shape.iter().product()], shape)
}

#[test]
fn keys_that_the_model_cannot_do_are_named_with_what_can_be() {
    let supported = |model: &str, key: &str, value: Value, supported: &str| {
        let expected = format!("config.json: {key} is {value}; supported: {supported}");
        assert_eq!(with_key(model, key, value), expected);
    };
    supported("gpt2", "model_type", json!("mistral"), r#""gpt2", "llama""#);
    supported("gpt2", "architectures", json!(["GPT2ForSequenceClassification"]), r#"["GPT2LMHeadModel"]"#);
    supported("llama", "architectures", json!(["LlamaModel"]), r#"["LlamaForCausalLM"]"#);
    for model in ["gpt2", "llama"] {
        supported(model, "quantization_config", json!({ "bits": 4 }), "null");
        supported(model, "vocab_size", json!(0), "a whole number from 1 to 268435456");
        supported(model, "vocab_size", json!("many"), "a whole number from 1 to 268435456");
        supported(model, "tie_word_embeddings", json!("yes"), "true or false");
        supported(model, "initializer_range", json!(-1), "a number of at least 0");
    }

    supported("gpt2", "scale_attn_weights", json!(false), "true");
    supported("gpt2", "scale_attn_by_inverse_layer_idx", json!(true), "false");
    supported("gpt2", "add_cross_attention", json!(true), "false");
    supported("gpt2", "activation_function", json!("relu"), r#""gelu_new", "gelu_pytorch_tanh", "gelu""#);
    supported("gpt2", "n_layer", json!(70_000), "a whole number from 1 to 65536");
    supported("gpt2", "n_inner", json!(-4), "a whole number from 1 to 268435456");
    supported("gpt2", "n_head", json!(5), "a divisor of n_embd, 24");
    supported("gpt2", "embd_pdrop", json!(0.5), "the value of resid_pdrop, 0.1");
    supported("gpt2", "resid_pdrop", json!(1), "a number from 0 to below 1");
    supported("gpt2", "attn_pdrop", json!(-0.1), "a number from 0 to below 1");
    supported("gpt2", "layer_norm_epsilon", json!(-1), "a number of at least 0");

    supported("llama", "sliding_window", json!(4096), "null");
    supported("llama", "hidden_act", json!("gelu"), r#""silu", "swish""#);
    supported("llama", "num_hidden_layers", json!(0), "a whole number from 1 to 65536");
    supported("llama", "num_attention_heads", json!(7), "a divisor of hidden_size, 24");
    supported("llama", "mlp_bias", json!(true), "the value of attention_bias, false");
    supported("llama", "attention_dropout", json!(2), "a number from 0 to below 1");
    supported("llama", "rms_norm_eps", json!("small"), "a number of at least 0");
    supported("llama", "rope_theta", json!(0), "a number above 0");
    supported("llama", "rope_parameters", json!("default"), "an object");
}

#[test]
fn other_rotary_positions_are_named_with_what_can_be() {
    let inside = |key: &str, value: Value| with_key("llama", key, value);
    assert_eq!(
        inside("rope_parameters", json!({ "rope_type": "llama3", "factor": 8 })),
        r#"config.json: rope_parameters.rope_type is "llama3"; supported: "default""#
    );
    assert_eq!(
        inside("rope_parameters", json!({ "partial_rotary_factor": 0.5 })),
        "config.json: rope_parameters.partial_rotary_factor is 0.5; supported: 1"
    );
    assert_eq!(
        inside("rope_parameters", json!({ "rope_theta": -1 })),
        "config.json: rope_parameters.rope_theta is -1; supported: a number above 0"
    );
    let spoilt = Spoilt::new("llama");
    edit(&spoilt.path("config.json"), |config| {
        config["rope_parameters"] = Value::Null;
        config["rope_scaling"] = json!({ "type": "linear", "factor": 2 });
    });
    assert_eq!(spoilt.said(), r#"config.json: rope_scaling.type is "linear"; supported: "default""#);
    edit(&spoilt.path("config.json"), |config| {
        config["rope_scaling"] = Value::Null;
        config["partial_rotary_factor"] = json!(0.25);
    });
    assert_eq!(spoilt.said(), "config.json: partial_rotary_factor is 0.25; supported: 1");
}

#[test]
fn no_value_of_a_key_is_a_surprise() {
    let odd = [json!(null), json!([]), json!({}), json!(""), json!(true), json!(-1), json!(0), json!(0.5), json!(3)];
    let odd = odd.into_iter().chain([json!(1000), json!(1u64 << 28), json!(u64::MAX), json!(1e300), json!("null")]);
    let odd: Vec<Value> = odd.collect();
    for model in ["gpt2", "llama"] {
        let spoilt = Spoilt::new(model);
        let path = spoilt.path("config.json");
        let config: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        for key in config.as_object().unwrap().keys() {
            for value in &odd {
                let mut changed = config.clone();
                changed[key] = value.clone();
                fs::write(&path, changed.to_string()).unwrap();
                // Whatever it is, it is said or has no effect on the names and shapes of the weights.
                if let Err(error) = load(spoilt.folder.path()) {
                    let said = error.to_string();
                    assert!(said.contains("config.json"), "{key} = {value}: {said}");
                }
            }
        }
    }
}

#[test]
fn sizes_that_are_missing_or_do_not_go_together_are_named() {
    for (model, keys) in [
        ("gpt2", ["model_type", "vocab_size", "n_positions", "n_embd", "n_head", "n_layer"].as_slice()),
        (
            "llama",
            &[
                "model_type",
                "vocab_size",
                "max_position_embeddings",
                "hidden_size",
                "num_attention_heads",
                "intermediate_size",
                "num_hidden_layers",
            ],
        ),
    ] {
        for key in keys {
            let expected = format!("config.json has no {key}, which the model cannot be without");
            assert_eq!(with_key(model, key, Value::Null), expected);
        }
    }
    assert_eq!(
        with_key("llama", "num_key_value_heads", json!(3)),
        "config.json: no transformer has 4 heads of queries that share 3 heads of keys: the second number must divide the first"
    );
    assert_eq!(
        with_key("llama", "head_dim", json!(5)),
        "config.json: no transformer has rotary positions and 5 features in a head: they are turned in pairs, so their number must be even"
    );
}

#[test]
fn text_that_is_no_json_is_shown_with_its_place() {
    let spoilt = Spoilt::new("gpt2");
    fs::write(spoilt.path("config.json"), "{\n  \"n_embd\": 24,\n").unwrap();
    let place = "config.json, line 3, column 0: EOF while parsing a value; copy the file again";
    assert_eq!(spoilt.said(), place);
    fs::write(spoilt.path("config.json"), "[1]").unwrap();
    assert_eq!(
        spoilt.said(),
        "config.json, line 1, column 0: invalid type: sequence, expected a map; copy the file again"
    );
    let spoilt = Spoilt::new("llama");
    fs::write(spoilt.path("model.safetensors.index.json"), "").unwrap();
    let place = "model.safetensors.index.json, line 1, column 0: EOF while parsing a value; copy the file again";
    assert_eq!(spoilt.said(), place);
}

#[test]
fn files_that_are_missing_are_named() {
    let spoilt = Spoilt::new("gpt2");
    fs::remove_file(spoilt.path("model.safetensors")).unwrap();
    assert_eq!(spoilt.said(), "DIR has neither model.safetensors nor model.safetensors.index.json");
    fs::write(spoilt.path("pytorch_model.bin"), "").unwrap();
    assert_eq!(
        spoilt.said(),
        "DIR has its weights in pytorch_model.bin, not in model.safetensors; \
         save it anew with save_pretrained(…, safe_serialization=True)"
    );
    fs::remove_file(spoilt.path("config.json")).unwrap();
    assert_eq!(spoilt.said(), "cannot read config.json: No such file or directory (os error 2)");
    let error = load_config(golden("nowhere")).unwrap_err();
    assert!(error.to_string().ends_with("nowhere/config.json: No such file or directory (os error 2)"), "{error}");
    assert!(!error.is_io(), "the name is to blame, not the disk");

    let spoilt = Spoilt::new("llama");
    fs::remove_file(spoilt.path("model-00002-of-00003.safetensors")).unwrap();
    assert_eq!(
        spoilt.said(),
        "model.safetensors.index.json: the shard model-00002-of-00003.safetensors, which holds \
         model.layers.0.input_layernorm.weight, is missing; copy the files again"
    );
}

#[test]
fn a_shard_that_is_damaged_is_named() {
    let spoilt = Spoilt::new("llama");
    let shard = spoilt.path("model-00003-of-00003.safetensors");
    let bytes = fs::read(&shard).unwrap();
    fs::write(&shard, &bytes[..bytes.len() - 1]).unwrap();
    let (found, expected) = (bytes.len() - 1, bytes.len());
    assert_eq!(
        spoilt.said(),
        format!(
            "model-00003-of-00003.safetensors is cut off: it ends at byte {found}, but its header announces {expected} bytes; \
             copy the file again or use an older one"
        )
    );
}

#[test]
fn an_index_that_lies_is_told() {
    let (first, third) = ("model-00001-of-00003.safetensors", "model-00003-of-00003.safetensors");
    let said = |change: &dyn Fn(&mut Value)| {
        let spoilt = Spoilt::new("llama");
        spoilt.change_index(change);
        let said = spoilt.said();
        let said = said.strip_prefix("model.safetensors.index.json: ").expect("the index");
        said.strip_suffix("; copy the files again").expect("what to do").to_string()
    };
    assert_eq!(said(&|index| index["weight_map"] = json!({})), "it has no weight_map from tensors to files");
    assert_eq!(said(&|index| *index = json!({})), "it has no weight_map from tensors to files");
    assert_eq!(
        said(&|index| index["weight_map"]["model.norm.weight"] = json!(first)),
        format!("the weight_map has model.norm.weight in {first}, which does not hold it")
    );
    assert_eq!(
        said(&|index| _ = index["weight_map"].as_object_mut().unwrap().remove("model.norm.weight")),
        format!("{third} holds model.norm.weight, which the weight_map does not have there")
    );
    for file in [json!("../other/model.safetensors"), json!("/etc/passwd"), json!(".."), json!(7)] {
        assert_eq!(
            said(&|index| index["weight_map"]["model.norm.weight"] = file.clone()),
            format!("the weight_map has model.norm.weight in {file}, which is not the name of a file beside it")
        );
    }
}

#[test]
fn tensors_that_are_not_the_models_are_listed() {
    let said = |model: &str, change: &dyn Fn(&mut BTreeMap<String, Tensor>)| {
        let spoilt = Spoilt::new(model);
        spoilt.change_weights(change);
        let said = spoilt.said();
        said.strip_prefix("the weights in DIR are not those of its config.json: ").expect(&said).to_string()
    };
    assert_eq!(said("gpt2", &|t| _ = t.remove("transformer.ln_f.weight")), "transformer.ln_f.weight is missing");
    assert_eq!(
        said("gpt2", &|t| _ = t.insert("transformer.ln_e.weight".into(), zeros(&[24]))),
        "transformer.ln_e.weight is not expected (nearest: transformer.ln_f.weight)"
    );
    assert_eq!(
        said("gpt2", &|t| _ = t.insert("a_classifier_of_something.weight".into(), zeros(&[24]))),
        "a_classifier_of_something.weight is not expected"
    );
    assert_eq!(
        said("gpt2", &|t| _ = t.insert("h.0.mlp.c_fc.weight".into(), zeros(&[24, 96]))),
        "transformer.h.0.mlp.c_fc.weight is there twice"
    );
    assert_eq!(
        said("gpt2", &|t| _ = t.insert("transformer.h.0.attn.c_attn.weight".into(), zeros(&[72, 24]))),
        "transformer.h.0.attn.c_attn.weight has the shape [72, 24] and must have [24, 72]"
    );
    assert_eq!(
        said("gpt2", &|t| _ = t.insert("transformer.ln_f.bias".into(), Tensor::from_slice(&[0_i64; 24], &[24]))),
        "transformer.ln_f.bias is i64; supported are f32, f16 and bf16"
    );
    assert_eq!(
        said("gpt2", &|t| _ = t.insert("lm_head.weight".into(), zeros(&[23, 24]))),
        "lm_head.weight differs from transformer.wte.weight, though tie_word_embeddings says that they are one"
    );
    assert_eq!(said("llama", &|t| _ = t.remove("lm_head.weight")), "lm_head.weight is missing");
    assert_eq!(
        said("llama", &|t| t.retain(|name, _| name.contains("layers.0"))),
        "model.embed_tokens.weight is missing; model.layers.1.input_layernorm.weight is missing; \
         model.layers.1.self_attn.q_proj.weight is missing; model.layers.1.self_attn.k_proj.weight is missing; \
         and 8 differences more"
    );
}

#[test]
fn a_model_that_neither_class_can_be_is_not_saved() {
    let place = tempfile::tempdir().unwrap();
    let said = |config: TransformerConfig| {
        let folder = place.path().join("model");
        let said = save(&Transformer::new(config), &folder, &SaveOptions::default()).unwrap_err().to_string();
        assert!(!folder.exists());
        said.strip_prefix("the model cannot be saved for Hugging Face: its positions are those of ")
            .unwrap()
            .to_string()
    };
    let (gpt2, llama) = (TransformerConfig::gpt2(5, 4, 1, 4, 2), TransformerConfig::llama(5, 4, 1, 4, 2));
    assert_eq!(
        said(TransformerConfig { norm: NormKind::Rms, activation: ActivationKind::SwiGlu, bias: false, ..gpt2 }),
        "GPT2LMHeadModel, which has layer norms, and GELU between two linear layers, and biases"
    );
    assert_eq!(
        said(TransformerConfig { kv_heads: 1, head_size: 4, ..gpt2 }),
        "GPT2LMHeadModel, which has as many heads of keys as of queries, not 1 of 2, \
         and as many features in all heads as in a token, not 2 · 4 of 4"
    );
    assert_eq!(
        said(TransformerConfig { norm: NormKind::Layer, activation: ActivationKind::Gelu, ..llama }),
        "LlamaForCausalLM, which has root-mean-square norms, and SwiGLU"
    );
    assert_eq!(
        said(TransformerConfig { heads: 3, kv_heads: 1, ..llama }),
        "LlamaForCausalLM, which has heads that divide the features, not 3 of 4"
    );
    let rotary = TransformerConfig { positions: Positions::Rotary { theta: 1e4 }, ..gpt2 };
    assert_eq!(said(rotary), "LlamaForCausalLM, which has root-mean-square norms, and SwiGLU");
}

#[test]
fn nothing_is_written_over() {
    let place = tempfile::tempdir().unwrap();
    let model = Transformer::new(TransformerConfig::gpt2(5, 4, 1, 4, 2));
    model.init(0);
    let try_to = |folder: &Path| save(&model, folder, &SaveOptions::default());
    let (file, full, empty) = (place.path().join("file"), place.path().join("full"), place.path().join("empty"));
    fs::write(&file, "text").unwrap();
    fs::create_dir(&full).unwrap();
    fs::write(full.join("notes.txt"), "text").unwrap();
    fs::create_dir(&empty).unwrap();
    for path in [&file, &full] {
        let expected = format!("{} exists already; name a new or empty folder", path.display());
        assert_eq!(try_to(path).unwrap_err().to_string(), expected);
    }
    try_to(&empty).unwrap();
    load(&empty).unwrap();
    let within = file.join("model");
    let error = try_to(&within).unwrap_err();
    assert!(error.is_io() && error.to_string().ends_with("Not a directory (os error 20)"), "{error}");
}
