//! The models that `transformers` made: its logits, gradients and training, and its files.

use super::files::{copy, edit, golden, json, names, said, weights};
use meshwork::checkpoint::save_weights;
use meshwork::hugging_face::{SaveOptions, load, load_config, save};
use meshwork::mesh::{Mesh, Plan};
use meshwork::nn::{ActivationKind, Module, Positions, Transformer, TransformerConfig};
use meshwork::optim::{AdamW, AdamWOptions, Group, Named, Optimizer};
use meshwork::train::loss;
use meshwork::{DType, Tensor};
use std::collections::BTreeMap;

const MODELS: [&str; 3] = ["gpt2", "llama", "llama_tied"];

/// Fails when an element differs by more than so much of itself and so much of the largest one.
#[track_caller]
fn assert_close(what: &str, found: &Tensor, expected: &Tensor, tolerance: f64) {
    assert_eq!(found.shape(), expected.shape(), "{what}: shape");
    let (found, expected) = (found.to_f64(), expected.to_f64());
    let largest = expected.iter().fold(0.0_f64, |most, e| most.max(e.abs()));
    for (i, (f, e)) in found.iter().zip(&expected).enumerate() {
        let near = (f - e).abs() <= tolerance * (e.abs() + largest);
        assert!(near, "{what}: element {i} is {f:e}, transformers has {e:e}");
    }
}

/// Tokens `[B, T + 1]` of a batch to what goes in and what shall come out.
fn pair(tokens: &Tensor) -> (Tensor, Tensor) {
    let length = tokens.size(1) - 1;
    (tokens.narrow(1, 0, length), tokens.narrow(1, 1, length))
}

fn batch(expected: &BTreeMap<String, Tensor>, step: usize) -> (Tensor, Tensor) {
    pair(&expected["tokens"].select(0, step as isize))
}

/// A model with the gradients in place of its weights, so that they can be saved under the names of `transformers`.
fn gradients_as_weights(model: &Transformer, loss: &Tensor) -> Transformer {
    let gradients = model.gradients(loss);
    let state = model.named_parameters().into_iter().map(|(name, parameter)| {
        let gradient = gradients.get(&parameter).unwrap_or_else(|| panic!("{name} has no gradient"));
        (name, gradient.clone())
    });
    let model = Transformer::new(*model.config());
    model.load_state(state.collect()).expect("gradients have the shapes of weights");
    model
}

#[test]
fn logits_and_gradients_are_those_of_transformers() {
    for name in MODELS {
        let expected = said(name, "expected");
        let model = load(golden(name)).unwrap();
        model.eval();
        let (inputs, targets) = batch(&expected, 0);
        let logits = model.forward(&inputs);
        assert_close(&format!("{name}: logits"), &logits, &expected["logits"], 1e-5);

        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("gradients");
        save(&gradients_as_weights(&model, &loss(&logits, &targets)), &folder, &SaveOptions::default()).unwrap();
        let (found, gradients) = (weights(&folder), said(name, "gradients"));
        assert_eq!(found.keys().collect::<Vec<_>>(), gradients.keys().collect::<Vec<_>>());
        for (parameter, gradient) in &gradients {
            assert_close(&format!("{name}: gradient of {parameter}"), &found[parameter], gradient, 1e-5);
        }
    }
}

#[test]
fn twenty_steps_of_adamw_are_those_of_pytorch() {
    for name in MODELS {
        let expected = said(name, "expected");
        let model = load(golden(name)).unwrap();
        model.eval();
        let matrix = |parameter: &str| parameter.ends_with("weight") && !parameter.contains("norm");
        let (matrices, others) = Named::from(&model).partition(matrix);
        let options = AdamWOptions { lr: 3e-3, betas: (0.9, 0.95), eps: 1e-8, weight_decay: 0.1 };
        let others = Group::new(others, AdamWOptions { weight_decay: 0.0, ..options.clone() });
        let mut adamw = AdamW::with_groups(vec![Group::new(matrices, options), others]);
        for (step, expected_loss) in expected["losses"].to_vec::<f32>().into_iter().enumerate() {
            let (inputs, targets) = batch(&expected, step);
            let loss = loss(&model.forward(&inputs), &targets);
            adamw.step(model.gradients(&loss));
            let (found, expected) = (loss.item(), f64::from(expected_loss));
            let near = (found - expected).abs() <= 1e-4 * expected;
            assert!(near, "{name}: the loss of step {step} is {found}, PyTorch has {expected}");
        }
    }
}

#[test]
fn what_was_read_is_written_again_in_equal_bits() {
    for (name, max_shard_bytes) in [("gpt2", 5_000_000_000), ("gpt2", 9_000), ("llama", 20_000), ("llama_tied", 1)] {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("saved");
        let model = load(golden(name)).unwrap();
        save(&model, &folder, &SaveOptions { max_shard_bytes, ..SaveOptions::default() }).unwrap();

        let (theirs, ours) = (weights(&golden(name)), weights(&folder));
        assert_eq!(ours.keys().collect::<Vec<_>>(), theirs.keys().collect::<Vec<_>>(), "{name}");
        for (tensor, value) in &theirs {
            let exact = value.to_dtype(DType::F32);
            assert_eq!(ours[tensor].shape(), exact.shape(), "{name}: {tensor}");
            assert_eq!(ours[tensor].to_bytes(), exact.to_bytes(), "{name}: {tensor}");
        }
        let again = load(&folder).unwrap();
        assert_eq!(again.config(), model.config(), "{name}");
        let bits = |model: &Transformer| -> Vec<_> {
            model.state().into_iter().map(|(name, value)| (name, value.to_bytes())).collect()
        };
        assert!(bits(&again) == bits(&model), "{name}");
    }
}

#[test]
fn every_key_of_a_saved_config_is_that_of_transformers() {
    for name in MODELS {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("saved");
        let end_of_text = (name == "llama_tied").then_some(0);
        save(&load(golden(name)).unwrap(), &folder, &SaveOptions { end_of_text, ..SaveOptions::default() }).unwrap();
        let (theirs, ours) = (json(&golden(name).join("config.json")), json(&folder.join("config.json")));
        for (key, value) in ours.as_object().unwrap() {
            match key.as_str() {
                // Weights in bf16 have become f32.
                "dtype" => assert_eq!(value, "float32"),
                // For versions that know no rope_parameters.
                "rope_theta" => assert_eq!(*value, theirs["rope_parameters"]["rope_theta"]),
                _ => assert_eq!(*value, theirs[key], "{name}: {key}"),
            }
        }
    }
}

#[test]
fn shards_have_at_most_so_many_bytes_and_an_index() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("saved");
    let model = load(golden("llama")).unwrap();
    save(&model, &folder, &SaveOptions { max_shard_bytes: 20_000, ..SaveOptions::default() }).unwrap();
    let shard = |i: usize| format!("model-0000{i}-of-00003.safetensors");
    let expected =
        ["config.json".to_string(), shard(1), shard(2), shard(3), "model.safetensors.index.json".to_string()];
    assert_eq!(names(&folder), expected);
    let index = json(&folder.join("model.safetensors.index.json"));
    let theirs = json(&golden("llama").join("model.safetensors.index.json"));
    assert_eq!(index["metadata"], theirs["metadata"]);
    for i in 1..=3 {
        let tensors = meshwork::checkpoint::load_weights(folder.join(shard(i))).unwrap();
        assert!(tensors.iter().map(|(_, tensor)| tensor.to_bytes().len()).sum::<usize>() <= 20_000);
        assert!(tensors.iter().all(|(name, _)| index["weight_map"][name] == shard(i).as_str()));
    }

    let folder = place.path().join("each by itself");
    save(&model, &folder, &SaveOptions { max_shard_bytes: 1, ..SaveOptions::default() }).unwrap();
    assert_eq!(names(&folder).len(), weights(&folder).len() + 2);
}

#[test]
fn the_configuration_is_understood() {
    let gpt2 = load_config(golden("gpt2")).unwrap();
    let expected = TransformerConfig {
        dropout: 0.1,
        attention_dropout: 0.2,
        norm_eps: 2e-5,
        ..TransformerConfig::gpt2(23, 12, 2, 24, 4)
    };
    assert_eq!(gpt2, expected);
    let llama = TransformerConfig {
        kv_heads: 2,
        hidden: 40,
        positions: Positions::Rotary { theta: 500.0 },
        ..TransformerConfig::llama(23, 12, 2, 24, 4)
    };
    assert_eq!(load_config(golden("llama")).unwrap(), llama);
    let tied = TransformerConfig {
        kv_heads: 1,
        head_size: 12,
        hidden: 24,
        bias: true,
        tied: true,
        norm_eps: 1e-6,
        ..TransformerConfig::llama(23, 12, 1, 16, 2)
    };
    assert_eq!(load_config(golden("llama_tied")).unwrap(), tied);
}

#[test]
fn older_forms_of_config_json_are_understood() {
    let place = tempfile::tempdir().unwrap();
    let with = |model: &str, name: &str, changes: serde_json::Value| {
        let folder = place.path().join(name);
        copy(model, &folder);
        edit(&folder.join("config.json"), |config| {
            config.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        });
        load_config(&folder).unwrap()
    };
    let null = serde_json::Value::Null;

    let theta = |config: TransformerConfig| match config.positions {
        Positions::Rotary { theta } => theta,
        Positions::Learned => panic!("rotary positions"),
    };
    let none = serde_json::json!({ "rope_parameters": null });
    assert_eq!(theta(with("llama", "without theta", none)), 10_000.0);
    let outside = serde_json::json!({ "rope_parameters": null, "rope_scaling": null, "rope_theta": 7 });
    assert_eq!(theta(with("llama", "theta outside", outside)), 7.0);
    let beside = serde_json::json!({ "rope_parameters": null, "rope_theta": 7, "rope_scaling": { "type": "default" } });
    assert_eq!(theta(with("llama", "theta beside", beside)), 7.0);

    let brief = serde_json::json!({ "head_dim": null, "num_key_value_heads": null, "rms_norm_eps": null, "hidden_act": "swish",
        "attention_bias": null, "mlp_bias": null, "attention_dropout": null, "tie_word_embeddings": null, "architectures": null });
    let brief = with("llama", "brief", brief);
    assert_eq!((brief.head_size, brief.kv_heads, brief.norm_eps, brief.tied), (6, 4, 1e-6, false));

    let inner = with("gpt2", "n_inner", serde_json::json!({ "n_inner": 7, "tie_word_embeddings": false }));
    assert_eq!((inner.hidden, inner.tied), (7, false));
    assert_eq!(with("gpt2", "n_inner null", serde_json::json!({ "n_inner": null })).hidden, 96);
    for (word, activation) in [
        (serde_json::json!("gelu_new"), ActivationKind::GeluTanh),
        (serde_json::json!("gelu_pytorch_tanh"), ActivationKind::GeluTanh),
        (serde_json::json!("gelu"), ActivationKind::Gelu),
        (null, ActivationKind::GeluTanh),
    ] {
        let config = with("gpt2", &word.to_string(), serde_json::json!({ "activation_function": word }));
        assert_eq!(config.activation, activation);
    }
}

#[test]
fn files_as_they_were_published_are_read() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("published");
    let expected = load(golden("gpt2")).unwrap().state();
    let same = |model: Transformer| {
        let state = model.state();
        assert!(state.iter().zip(&expected).all(|((_, a), (_, b))| a.to_bytes() == b.to_bytes()));
    };
    let tensors = weights(&golden("gpt2"));
    let rewrite = |change: &dyn Fn(&mut BTreeMap<String, Tensor>)| {
        copy("gpt2", &folder);
        let mut tensors = tensors.clone();
        change(&mut tensors);
        save_weights(folder.join("model.safetensors"), &tensors.into_iter().collect::<Vec<_>>()).unwrap();
    };
    // GPT-2's own file: no prefix, and masks that are constants.
    rewrite(&|tensors| {
        *tensors = std::mem::take(tensors)
            .into_iter()
            .map(|(name, t)| (name.strip_prefix("transformer.").unwrap().to_string(), t))
            .collect();
        tensors.insert("h.0.attn.bias".into(), Tensor::from_slice(&[1_u8; 144], &[1, 1, 12, 12]));
        tensors.insert("h.1.attn.masked_bias".into(), Tensor::from_slice(&[-1e4_f32], &[]));
    });
    same(load(&folder).unwrap());
    // The head, though it is the embedding.
    rewrite(&|tensors| {
        tensors.insert("lm_head.weight".into(), tensors["transformer.wte.weight"].clone());
    });
    same(load(&folder).unwrap());
    // Half the bytes.
    rewrite(&|tensors| tensors.values_mut().for_each(|t| *t = t.to_dtype(DType::F16)));
    let state = load(&folder).unwrap().state();
    for ((name, found), (_, expected)) in state.iter().zip(&expected) {
        assert_eq!(found.to_bytes(), expected.to_dtype(DType::F16).to_dtype(DType::F32).to_bytes(), "{name}");
    }
    // Llama's files held the angles of rotary positions.
    let folder = place.path().join("llama");
    copy("llama_tied", &folder);
    let mut tensors: Vec<_> = weights(&folder).into_iter().collect();
    tensors.push(("model.layers.0.self_attn.rotary_emb.inv_freq".into(), Tensor::from_slice(&[1.0_f32; 6], &[6])));
    save_weights(folder.join("model.safetensors"), &tensors).unwrap();
    load(&folder).unwrap();
}

#[test]
fn a_model_is_saved_from_a_mesh_with_equal_bytes() {
    let place = tempfile::tempdir().unwrap();
    let options = SaveOptions { max_shard_bytes: 20_000, ..SaveOptions::default() };
    for name in ["gpt2", "llama"] {
        let model = load(golden(name)).unwrap();
        let (alone, spread) = (place.path().join(format!("{name} alone")), place.path().join(format!("{name} spread")));
        save(&model, &alone, &options).unwrap();
        let device = meshwork::default_device();
        let mesh = Mesh::new([("tensor", 2)], &[device.clone(), device]).unwrap();
        let plan = Plan { tensor: 2, places: model.config().tensor_plan(), ..Plan::default() };
        plan.apply(&model, &mesh).unwrap();
        save(&model, &spread, &options).unwrap();
        assert_eq!(names(&alone), names(&spread));
        for file in names(&alone) {
            assert!(std::fs::read(alone.join(&file)).unwrap() == std::fs::read(spread.join(&file)).unwrap(), "{file}");
        }
    }
}
