use super::disk::tests::pull_the_plug_after;
use super::*;
use crate::Tensor;
use crate::nn::Linear;
use crate::optim::{Optimizer, OptimizerState, Sgd, SgdOptions};
use meshwork_data::Position;
use std::fs;
use std::path::Path;
use tempfile::TempDir;

fn weights(value: f32) -> Vec<(String, Tensor)> {
    vec![
        ("weight".to_string(), Tensor::from_slice(&[value; 6], &[2, 3])),
        ("bias".to_string(), Tensor::from_slice(&[value; 2], &[2])),
    ]
}

fn optimizer(value: f32) -> OptimizerState {
    OptimizerState {
        kind: "sgd".to_string(),
        steps: 3,
        lrs: vec![0.1],
        counts: vec![("weight".to_string(), 3), ("bias".to_string(), 2)],
        tensors: weights(value).into_iter().map(|(name, t)| (format!("momentum.{name}"), t)).collect(),
    }
}

fn state(step: u64) -> TrainingState {
    TrainingState {
        model: "lenet".to_string(),
        step,
        position: Position { epoch: 1, sample: 64 },
        seed: 7,
        precision: crate::tensor::Precision::F32,
        loss_scale: None,
        epoch_loss: LossSum { sum: 0.1 + 0.2, samples: 64 },
        settings: [("lr".to_string(), "0.1".to_string())].into(),
    }
}

/// A folder with the checkpoints of steps 10 and 20.
fn two_checkpoints() -> (TempDir, Folder) {
    let temporary = tempfile::tempdir().unwrap();
    let folder = Folder::new(temporary.path().join("run"));
    for step in [10, 20] {
        folder.save(&state(step), &weights(step as f32), &optimizer(step as f32)).unwrap();
    }
    (temporary, folder)
}

fn values(tensors: &[(String, Tensor)]) -> Vec<(String, Vec<f32>)> {
    tensors.iter().map(|(name, t)| (name.clone(), t.to_vec())).collect()
}

fn check(checkpoint: &Checkpoint, step: u64) {
    assert_eq!(checkpoint.state(), &state(step));
    let mut expected = values(&weights(step as f32));
    expected.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(values(checkpoint.model()), expected);
    assert_eq!(checkpoint.optimizer().counts, optimizer(0.0).counts);
    assert_eq!(checkpoint.optimizer().tensors[0].1.to_vec::<f32>(), [step as f32; 2]);
}

#[test]
fn weights_come_back_and_equal_ones_give_equal_files() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (folder.path().join("a.safetensors"), folder.path().join("b.safetensors"));
    let mut tensors = weights(0.5);
    tensors.push(("flags".to_string(), Tensor::from_slice(&[true, false], &[2])));
    tensors.push(("count".to_string(), Tensor::from_slice(&[5_i64], &[])));
    save_weights(&a, &tensors).unwrap();
    tensors.reverse();
    save_weights(&b, &tensors).unwrap();
    assert_eq!(fs::read(&a).unwrap(), fs::read(&b).unwrap());

    let loaded = load_weights(&a).unwrap();
    let names: Vec<&str> = loaded.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["bias", "count", "flags", "weight"]);
    assert_eq!(loaded[1].1.to_vec::<i64>(), [5]);
    assert_eq!(loaded[2].1.to_vec::<bool>(), [true, false]);
    assert_eq!((loaded[3].1.shape(), loaded[3].1.to_vec::<f32>()), (&[2, 3][..], vec![0.5; 6]));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "temporary files are left");
}

#[test]
fn the_last_two_checkpoints_are_kept() {
    let (_temporary, folder) = two_checkpoints();
    check(&folder.load().unwrap(), 20);
    folder.save(&state(30), &weights(30.0), &optimizer(30.0)).unwrap();
    let mut names: Vec<_> =
        fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, ["latest", "model.safetensors", "step-20", "step-30"]);
    check(&folder.load().unwrap(), 30);
    check(&Folder::new(folder.path().join("step-20")).load().unwrap(), 20);
    let newest = load_weights(folder.path().join("model.safetensors")).unwrap();
    assert_eq!(newest[0].1.to_vec::<f32>(), [30.0; 2]);
}

#[test]
fn a_checkpoint_is_whole_whenever_the_process_dies() {
    for moments in 0.. {
        let (_temporary, folder) = two_checkpoints();
        pull_the_plug_after(Some(moments));
        let saved = folder.save(&state(30), &weights(30.0), &optimizer(30.0));
        pull_the_plug_after(None);

        let step = folder.load().unwrap().state().step;
        assert!(step == 20 || step == 30, "after {moments} moments the newest checkpoint is of step {step}");
        check(&folder.load().unwrap(), step);
        let newest = load_weights(folder.path().join("model.safetensors")).unwrap();
        assert!(newest[0].1.to_vec::<f32>()[0] >= 20.0);

        folder.save(&state(40), &weights(40.0), &optimizer(40.0)).unwrap();
        check(&folder.load().unwrap(), 40);
        let left = fs::read_dir(folder.path()).unwrap().filter(|e| {
            let name = e.as_ref().unwrap().file_name();
            !["latest", "model.safetensors"].contains(&name.to_str().unwrap())
        });
        assert_eq!(left.count(), 2);
        if saved.is_ok() {
            assert!(moments > 20, "a save has more moments than {moments}");
            return;
        }
    }
}

#[test]
fn the_first_save_may_die_too() {
    for moments in 0..60 {
        let temporary = tempfile::tempdir().unwrap();
        let folder = Folder::new(temporary.path().join("run"));
        pull_the_plug_after(Some(moments));
        let saved = folder.save(&state(10), &weights(10.0), &optimizer(10.0));
        pull_the_plug_after(None);
        match folder.load() {
            Ok(checkpoint) => check(&checkpoint, 10),
            Err(CheckpointError::Broken { intact: Some(path), .. }) => check(&Folder::new(path).load().unwrap(), 10),
            Err(e) => assert!(matches!(e, CheckpointError::NoCheckpoint { .. }) && saved.is_err(), "{e}"),
        }
    }
}

/// Damages the newest checkpoint and gives the message.
fn refused(damage: impl Fn(&Path)) -> String {
    refused_naming(10, damage)
}

/// Damages something, checks that the checkpoint of a step is named as intact, and gives the message.
fn refused_naming(step: u64, damage: impl Fn(&Path)) -> String {
    let (temporary, folder) = two_checkpoints();
    damage(&folder.path().join("step-20"));
    let error = folder.load().unwrap_err();
    let CheckpointError::Broken { intact: Some(intact), .. } = &error else { panic!("{error}") };
    assert_eq!(*intact, folder.path().join(format!("step-{step}")));
    check(&Folder::new(intact).load().unwrap(), step);
    let text = error.to_string().replace(temporary.path().to_str().unwrap(), "");
    let advice = format!("the checkpoint /run/step-{step} is intact: to go on from there, resume from that folder");
    assert!(text.ends_with(&advice), "{text}");
    text
}

fn flip(path: &Path, byte: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[byte] ^= 0x10;
    fs::write(path, bytes).unwrap();
}

fn cut(path: &Path, bytes: usize) {
    let whole = fs::read(path).unwrap();
    fs::write(path, &whole[..whole.len() - bytes]).unwrap();
}

#[test]
fn damaged_checkpoints_are_refused_and_the_intact_one_named() {
    let text = refused(|newest| cut(&newest.join("model.safetensors"), 1));
    assert!(text.starts_with("/run/step-20/model.safetensors is cut off: it ends at byte "), "{text}");
    let text = refused(|newest| fs::write(newest.join("optimizer.safetensors"), [0; 9000]).unwrap());
    assert!(text.starts_with("/run/step-20/optimizer.safetensors has bytes to spare: it has 9000"), "{text}");
    let text = refused(|newest| fs::remove_file(newest.join("model.safetensors")).unwrap());
    assert!(text.starts_with("cannot read /run/step-20/model.safetensors: No such file"), "{text}");
    let text = refused(|newest| fs::remove_file(newest.join("manifest.json")).unwrap());
    assert!(text.starts_with("cannot read /run/step-20/manifest.json"), "{text}");
    let text = refused(|newest| fs::remove_dir_all(newest).unwrap());
    assert!(text.starts_with("cannot read /run/step-20/manifest.json"), "{text}");
    let text = refused_naming(20, |newest| fs::write(newest.with_file_name("latest"), "../elsewhere\n").unwrap());
    assert!(text.starts_with("/run/latest, line 1, column 1: \"../elsewhere\" is not the name"), "{text}");
    let text = refused_naming(20, |newest| fs::remove_file(newest.with_file_name("latest")).unwrap());
    assert!(text.starts_with("cannot read /run/latest"), "{text}");
}

#[test]
fn every_flipped_bit_is_noticed() {
    let (_temporary, folder) = two_checkpoints();
    for name in ["model.safetensors", "optimizer.safetensors", "state.json", "manifest.json"] {
        let path = folder.path().join("step-20").join(name);
        for byte in 0..fs::read(&path).unwrap().len() {
            flip(&path, byte);
            // A break of the manifest's lines into other white space changes nothing.
            if folder.load().is_ok() {
                assert!(name == "manifest.json", "a flipped bit in byte {byte} of {name} went unnoticed");
            }
            flip(&path, byte);
        }
    }
    check(&folder.load().unwrap(), 20);
    let text = refused(|newest| flip(&newest.join("model.safetensors"), 180));
    assert!(text.contains("step-20/model.safetensors is damaged: its ") && text.contains("was saved"), "{text}");
}

#[test]
fn folders_without_checkpoints_are_refused() {
    let temporary = tempfile::tempdir().unwrap();
    let load = |name: &str| Folder::new(temporary.path().join(name)).load().unwrap_err().to_string();
    fs::write(temporary.path().join("file"), "").unwrap();
    fs::create_dir(temporary.path().join("empty")).unwrap();
    assert!(load("absent").contains("absent does not exist; name the folder"));
    assert!(load("file").contains("file is a file; name the folder"));
    assert!(load("empty").contains("empty holds no checkpoint"));
    assert!(Folder::new(temporary.path().join("absent")).claim().is_ok());
    assert!(Folder::new(temporary.path().join("empty")).claim().is_ok());
    let (_kept, folder) = two_checkpoints();
    assert!(matches!(folder.claim(), Err(CheckpointError::Occupied { step: 20, .. })));
    assert!(matches!(Folder::new(temporary.path().join("file")).claim(), Err(CheckpointError::NoCheckpoint { .. })));
}

#[test]
fn checkpoints_of_newer_programs_are_refused() {
    let text = refused(|newest| {
        let path = newest.join("manifest.json");
        let text = fs::read_to_string(&path).unwrap().replace("\"format\": 1", "\"format\": 2, \"more\": []");
        fs::write(path, text).unwrap();
    });
    assert!(
        text.starts_with("/run/step-20/manifest.json has format 2, but this version reads up to format 1"),
        "{text}"
    );
}

fn load_bytes(bytes: &[u8]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    fs::write(&path, bytes).unwrap();
    let error = load_weights(&path).unwrap_err();
    error.to_string().replace(path.to_str().unwrap(), "w")
}

fn with_header(header: &str, data: usize) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.bytes());
    bytes.resize(bytes.len() + data, 2);
    bytes
}

#[test]
fn bad_weights_are_refused() {
    let tensor = |dtype: &str, shape: &str, from: u64, to: u64| {
        format!(r#"{{"x":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{from},{to}]}}}}"#)
    };
    let good = with_header(&tensor("F32", "[2]", 0, 8), 8);
    let end = good.len() - 8;
    for cut in 0..good.len() {
        assert!(load_bytes(&good[..cut]).starts_with("w is cut off: it ends at byte "), "cut at {cut}");
    }
    let cases = [
        (load_bytes(&[]), "it ends at byte 0, but a safetensors header announces 8".to_string()),
        (load_bytes(&good[..end + 3]), format!("it ends at byte {}, but its header announces {}", end + 3, end + 8)),
        (load_bytes(&[&good[..], &[0]].concat()), "w has bytes to spare".to_string()),
        (load_bytes(&u64::MAX.to_le_bytes()), "its length is given as 18446744073709551615 bytes".to_string()),
        (load_bytes(&with_header("{\"x\":", 0)), "not the JSON of a safetensors header".to_string()),
        (load_bytes(&with_header("\u{ff}", 0)[..9]), "cut off".to_string()),
        (load_bytes(&with_header(&tensor("F32", "[3]", 0, 8), 8)), "shape and dtype do not make".to_string()),
        (load_bytes(&with_header(&tensor("F32", "[2]", 4, 12), 12)), "tensor \"x\" overlap".to_string()),
        (
            load_bytes(&with_header(&tensor("F32", "[9999999999999,9999999999999]", 0, 8), 8)),
            "multiply to more than any memory".to_string(),
        ),
        (load_bytes(&with_header(&tensor("I16", "[2]", 0, 4), 4)), "\"x\" has elements of type I16".to_string()),
        (load_bytes(&with_header(&tensor("BOOL", "[2]", 0, 2), 2)), "bytes other than 0 and 1".to_string()),
    ];
    for (text, expected) in cases {
        assert!(text.starts_with("w") && text.contains(&expected), "{text}\nshould contain {expected:?}");
    }
    let missing = load_weights("/nowhere/w.safetensors").unwrap_err().to_string();
    assert!(missing.starts_with("cannot read /nowhere/w.safetensors: No such file"), "{missing}");
}

#[test]
fn weights_of_another_model_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    let mut tensors = weights(1.0);
    tensors[1].0 = "bios".to_string();
    save_weights(&path, &tensors).unwrap();
    let model = Linear::new(4, 2);
    let text = load_module(&path, &model).unwrap_err().to_string();
    let text = text.replace(path.to_str().unwrap(), "w");
    assert_eq!(
        text,
        "w does not fit the model: weight is f32[2, 3] there and f32[2, 4] in the model; bias is missing; \
         the model has no bios (nearest: bias). Choose the model that the file was made with"
    );
    let model = Linear::new(3, 2);
    let (_kept, folder) = two_checkpoints();
    folder.load().unwrap().load_model(&model).unwrap();
    assert_eq!(model.weight.value().to_vec::<f32>(), [20.0; 6]);
}

#[test]
fn optimizers_take_their_own_state_only() {
    let (_kept, folder) = two_checkpoints();
    let checkpoint = folder.load().unwrap();
    let options = SgdOptions { momentum: 0.9, ..SgdOptions::new(0.1) };
    let mut fitting = Sgd::new(&Linear::new(3, 2), options);
    checkpoint.load_optimizer(&mut fitting).unwrap();
    assert_eq!(fitting.steps(), 3);
    let mut without_momentum = Sgd::new(&Linear::new(3, 2), SgdOptions::new(0.1));
    let text = checkpoint.load_optimizer(&mut without_momentum).unwrap_err().to_string();
    assert!(text.contains("step-20/optimizer.safetensors: the state does not fit the optimizer"), "{text}");
    assert!(text.contains("unknown: momentum.weight") && !text.contains('\n'), "{text}");
}
