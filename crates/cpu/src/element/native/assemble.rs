//! From a program to the bytes of a function: registers for its values, and the loop over vectors.

use super::Refused;
use super::program::{Elements, Place, Program, Source, Step, Value};
use super::target::Target;
use iced_x86::{
    BlockEncoder, BlockEncoderOptions, Code, Instruction, InstructionBlock, MemoryOperand, OpKind, Register,
};
use meshwork_graph::canonical::LANES;
use std::marker::PhantomData;

/// The caller's registers, in the order of its arguments.
const TABLE: Register = Register::RDI;
const CONSTANTS: Register = Register::RSI;
const WHOLE: Register = Register::RDX;
const REST: Register = Register::ECX;
/// The first element of the vector; the argument before has gone to [`TAIL`] by then.
const INDEX: Register = Register::RCX;
/// The elements of the last vector, where masks have registers.
const TAIL: Register = Register::K7;
/// Where an address is brought that has no register of its own.
const SPARE: Register = Register::RAX;
/// Registers for addresses. Those from `RBX` on belong to the caller.
const ADDRESSES: [Register; 10] = [
    Register::R8,
    Register::R9,
    Register::R10,
    Register::R11,
    Register::RBX,
    Register::RBP,
    Register::R12,
    Register::R13,
    Register::R14,
    Register::R15,
];
const FREE_TO_USE: usize = 4;

/// The first entries of the table: the number of rows, where the block ends that is computed, and where the last block of a row
/// begins. The addresses follow, then how far it is from row to row for each.
pub mod entries {
    pub const ROWS: usize = 0;
    pub const END: usize = 1;
    pub const LAST: usize = 2;
    pub const ADDRESSES: usize = 3;
}

/// The bytes of the function, and its table of constants. What is one number for all lanes is read once, before the loop, as
/// far as there are registers for it.
pub fn assemble<T: Target>(program: &Program) -> Result<(Vec<u8>, Vec<u32>), Refused> {
    let spread = program.spread();
    let fixed = |count: usize| {
        let program = program.with_fixed(T::CODES.broadcast, &spread[..count]);
        registers::<T>(&program).map(|registers| (program, registers))
    };
    let (program, (registers, sums)) =
        (1..=spread.len()).rev().find_map(|count| fixed(count).ok()).map_or_else(|| fixed(0), Ok)?;
    let (constants, instructions, target) = (vec![], vec![], PhantomData::<T>);
    let mut assembly = Assembly { program: &program, registers, sums, constants, instructions, labels: 0, target };
    assembly.function();
    let block = InstructionBlock::new(&assembly.instructions, 0);
    let encoded = BlockEncoder::encode(64, block, BlockEncoderOptions::NONE);
    // What no instruction reads as one number for all lanes stands there for each.
    let times = if T::HAS_MASKS { 1 } else { T::LANES };
    let constants = assembly.constants.iter().flat_map(|&bits| std::iter::repeat_n(bits, times)).collect();
    Ok((encoded.expect("instructions that the encoder knows").code_buffer, constants))
}

/// A register for every value that has one, and those of sums. A value's register is free again for the result of the last step
/// that reads it.
fn registers<T: Target>(program: &Program) -> Result<(Vec<Register>, Vec<Register>), Refused> {
    if !program.sums.is_empty() && T::LANES * program.parts != LANES {
        return Err(Refused::Registers);
    }
    let mut last = vec![0; program.steps.len()];
    for (i, step) in program.steps.iter().enumerate() {
        step.reads().for_each(|value| last[usize::from(value)] = i);
    }
    last[..program.fixed].fill(program.steps.len());
    let (first, count) = T::VECTORS;
    let mut vectors: Vec<Register> = (0..count).rev().map(|i| first + i).collect();
    let sums = (0..program.sums.len() * program.parts).map(|_| vectors.pop().ok_or(Refused::Registers));
    let sums = sums.collect::<Result<_, _>>()?;
    // The first mask stands for no mask.
    let mut masks: Vec<Register> = (1..7).rev().map(|i| Register::K0 + i).collect();
    let mut registers = vec![Register::None; program.steps.len()];
    for (i, step) in program.steps.iter().enumerate() {
        let mut ended: Vec<Value> = step.reads().filter(|&value| last[usize::from(value)] == i).collect();
        ended.sort_unstable();
        ended.dedup();
        // What is given a result keeps its register for it, if nobody else reads it.
        let over = match step.sources.first() {
            Some(&Source::Value(value)) if step.over => Some(value),
            _ => None,
        };
        if let Some(value) = over
            && last[usize::from(value)] == i
        {
            ended.retain(|&other| other != value);
            registers[i] = registers[usize::from(value)];
        } else if over.is_some() {
            // Its own, in which no source is.
            registers[i] = vectors.pop().ok_or(Refused::Registers)?;
        }
        for value in ended {
            match program.steps[usize::from(value)].to {
                Place::Mask if T::HAS_MASKS => masks.push(registers[usize::from(value)]),
                _ => vectors.push(registers[usize::from(value)]),
            }
        }
        registers[i] = match step.to {
            _ if over.is_some() => registers[i],
            Place::Mask if T::HAS_MASKS => masks.pop().ok_or(Refused::Registers)?,
            Place::Vector | Place::Mask => vectors.pop().ok_or(Refused::Registers)?,
            Place::Memory(_) | Place::Sum(_) | Place::Nowhere => Register::None,
        };
        if last[i] == 0 {
            // Nobody reads it.
            match step.to {
                Place::Mask if T::HAS_MASKS => masks.push(registers[i]),
                Place::Vector | Place::Mask => vectors.push(registers[i]),
                Place::Memory(_) | Place::Sum(_) | Place::Nowhere => {}
            }
        }
    }
    Ok((registers, sums))
}

struct Assembly<'a, T> {
    program: &'a Program,
    registers: Vec<Register>,
    /// Of each sum one for every vector.
    sums: Vec<Register>,
    constants: Vec<u32>,
    instructions: Vec<Instruction>,
    labels: u64,
    target: PhantomData<T>,
}

/// A place in the code.
#[derive(Clone, Copy)]
struct Label(u64);

impl<T: Target> Assembly<'_, T> {
    /// For every row the loop over whole vectors, block by block where there are sums, and once the body for the rest if masks say
    /// which elements there are.
    fn function(&mut self) {
        let saved = &ADDRESSES[FREE_TO_USE.min(self.program.addresses)..self.program.addresses.min(ADDRESSES.len())];
        for &register in saved {
            self.add(Instruction::with1(Code::Push_r64, register));
        }
        if T::HAS_MASKS {
            self.add(Instruction::with2(Code::VEX_Kmovd_kr_r32, TAIL, REST));
        }
        for (i, &register) in ADDRESSES.iter().enumerate().take(self.program.addresses) {
            self.address(i as u16, register);
        }
        let [row, block, start, rest, last] = std::array::from_fn(|_| self.label());
        let has_blocks = !self.sums.is_empty();
        self.fixed(|source| matches!(source, Source::Constant(_)));
        self.place(row);
        self.fixed(|source| matches!(source, Source::One { .. }));
        self.clear_sums();
        self.add(Instruction::with2(Code::Xor_r32_rm32, Register::ECX, Register::ECX));
        self.add(Instruction::with2(Code::Test_rm64_r64, WHOLE, WHOLE));
        self.add(Instruction::with_branch(Code::Je_rel32_64, rest.0));
        self.place(block);
        if has_blocks {
            self.block_end();
        }
        self.place(start);
        self.body(false);
        self.add(Instruction::with2(Code::Add_rm64_imm8, INDEX, (T::LANES * self.program.parts) as i32));
        if has_blocks {
            self.add(Instruction::with2(Code::Cmp_r64_rm64, INDEX, self.entry(entries::END)));
            self.add(Instruction::with_branch(Code::Jb_rel32_64, start.0));
            self.add(Instruction::with2(Code::Cmp_r64_rm64, INDEX, self.entry(entries::LAST)));
            self.add(Instruction::with_branch(Code::Ja_rel32_64, rest.0));
            self.next_block();
            self.add(Instruction::with2(Code::Cmp_r64_rm64, INDEX, WHOLE));
            self.add(Instruction::with_branch(Code::Jb_rel32_64, block.0));
        } else {
            self.add(Instruction::with2(Code::Cmp_r64_rm64, INDEX, WHOLE));
            self.add(Instruction::with_branch(Code::Jb_rel32_64, start.0));
        }
        self.place(rest);
        if T::HAS_MASKS {
            let end = self.label();
            self.add(Instruction::with2(Code::VEX_Kortestw_kr_kr, TAIL, TAIL));
            self.add(Instruction::with_branch(Code::Je_rel32_64, end.0));
            self.body(true);
            self.place(end);
        }
        self.store_sums();
        let count = self.entry(entries::ROWS);
        self.add(Instruction::with2(Code::Sub_rm64_imm8, count, 1));
        self.add(Instruction::with_branch(Code::Je_rel32_64, last.0));
        for address in 0..self.program.addresses {
            let step = self.entry(entries::ADDRESSES + self.program.addresses + address);
            match ADDRESSES.get(address) {
                Some(&register) => self.add(Instruction::with2(Code::Add_r64_rm64, register, step)),
                None => {
                    self.add(Instruction::with2(Code::Mov_r64_rm64, SPARE, step));
                    let entry = self.entry(entries::ADDRESSES + address);
                    self.add(Instruction::with2(Code::Add_rm64_r64, entry, SPARE));
                }
            }
        }
        self.add(Instruction::with_branch(Code::Jmp_rel32_64, row.0));
        self.place(last);
        self.add(Ok(Instruction::with(Code::VEX_Vzeroupper)));
        for &register in saved.iter().rev() {
            self.add(Instruction::with1(Code::Pop_r64, register));
        }
        self.add(Ok(Instruction::with(Code::Retnq)));
    }

    fn add(&mut self, instruction: Result<Instruction, iced_x86::IcedError>) {
        self.instructions.push(instruction.expect("operands that fit the instruction"));
    }

    fn label(&mut self) -> Label {
        self.labels += 1;
        Label(self.labels)
    }

    /// Labels the next instruction.
    fn place(&mut self, label: Label) {
        let mut nop = Instruction::with(Code::Nopd);
        nop.set_ip(label.0);
        self.instructions.push(nop);
    }

    /// An entry of the table.
    fn entry(&self, index: usize) -> MemoryOperand {
        MemoryOperand::with_base_displ(TABLE, index as i64 * 8)
    }

    /// Brings an address into a register.
    fn address(&mut self, address: u16, register: Register) {
        let entry = self.entry(entries::ADDRESSES + usize::from(address));
        self.add(Instruction::with2(Code::Mov_r64_rm64, register, entry));
    }

    /// The steps before the loop that read such a number.
    fn fixed(&mut self, reads: impl Fn(Source) -> bool) {
        for (i, step) in self.program.steps.iter().enumerate().take(self.program.fixed) {
            if reads(step.sources[0]) {
                self.step(i, step, false);
            }
        }
    }

    /// Everything for one vector, of which there may be the elements of [`TAIL`] alone.
    fn body(&mut self, is_tail: bool) {
        for (i, step) in self.program.steps.iter().enumerate().skip(self.program.fixed) {
            self.step(i, step, is_tail);
        }
    }

    /// The last blocks of rows end with their last whole vector.
    fn block_end(&mut self) {
        self.add(Instruction::with2(Code::Mov_r64_rm64, SPARE, INDEX));
        self.add(Instruction::with2(Code::Add_rm64_imm32, SPARE, self.program.block as i32));
        self.add(Instruction::with2(Code::Cmp_r64_rm64, SPARE, WHOLE));
        self.add(Instruction::with2(Code::Cmova_r64_rm64, SPARE, WHOLE));
        self.add(Instruction::with2(Code::Mov_rm64_r64, self.entry(entries::END), SPARE));
    }

    /// Ends the lanes of a block behind which another one follows.
    fn next_block(&mut self) {
        self.store_sums();
        for address in self.program.sums.iter().map(|&address| usize::from(address)) {
            let line = (LANES * size_of::<f32>()) as i32;
            match ADDRESSES.get(address) {
                Some(&register) => self.add(Instruction::with2(Code::Add_rm64_imm32, register, line)),
                None => {
                    let entry = self.entry(entries::ADDRESSES + address);
                    self.add(Instruction::with2(Code::Add_rm64_imm32, entry, line));
                }
            }
        }
        self.clear_sums();
    }

    fn clear_sums(&mut self) {
        for sum in self.sums.clone() {
            self.add(Instruction::with3(T::CODES.xor, sum, sum, sum));
        }
    }

    /// Stores the lanes of a block.
    fn store_sums(&mut self) {
        let parts = self.program.parts;
        for (i, sum) in self.sums.clone().into_iter().enumerate() {
            let base = self.base(self.program.sums[i / parts]);
            let place = MemoryOperand::with_base_displ(base, (i % parts * T::LANES * size_of::<f32>()) as i64);
            self.add(Instruction::with2(T::CODES.store, place, sum));
        }
    }

    fn step(&mut self, i: usize, step: &Step, is_tail: bool) {
        if is_tail && step.to == Place::Nowhere {
            return;
        }
        let mut instruction = Instruction::default();
        instruction.set_code(step.code);
        let mut operand = 0;
        match step.to {
            Place::Nowhere => {}
            Place::Sum(sum) => {
                self.register(&mut instruction, operand, self.sums[usize::from(sum)]);
                if is_tail {
                    instruction.set_op_mask(TAIL);
                }
            }
            Place::Memory(elements) => {
                self.elements(&mut instruction, operand, elements);
                if is_tail {
                    if step.code == T::CODES.store_past_caches {
                        // Only whole lines go past the caches.
                        instruction.set_code(T::CODES.store);
                    }
                    instruction.set_op_mask(TAIL);
                }
            }
            _ => self.register(&mut instruction, operand, self.registers[i]),
        }
        let mut sources = &step.sources[..];
        if step.over {
            let Source::Value(value) = sources[0] else { unreachable!("what is given a result is in a register") };
            let (from, to) = (self.registers[usize::from(value)], self.registers[i]);
            if from != to {
                self.add(Instruction::with2(T::CODES.copy, to, from));
            }
            sources = &sources[1..];
        }
        operand += u32::from(step.to != Place::Nowhere);
        for &source in sources {
            match source {
                Source::Sum(sum) => self.register(&mut instruction, operand, self.sums[usize::from(sum)]),
                Source::Value(value) => self.register(&mut instruction, operand, self.registers[usize::from(value)]),
                Source::Constant(bits) => {
                    let place = self.constants.iter().position(|&known| known == bits).unwrap_or_else(|| {
                        self.constants.push(bits);
                        self.constants.len() - 1
                    });
                    instruction.set_op_kind(operand, OpKind::Memory);
                    instruction.set_memory_base(CONSTANTS);
                    let numbers = if T::HAS_MASKS { 1 } else { T::LANES };
                    instruction.set_memory_displacement64((4 * numbers * place) as u64);
                    instruction.set_memory_displ_size(8);
                    // A broadcast itself reads one number.
                    instruction.set_is_broadcast(T::HAS_MASKS && step.code != T::CODES.broadcast);
                }
                Source::One { address } => {
                    let base = self.base(address);
                    instruction.set_op_kind(operand, OpKind::Memory);
                    instruction.set_memory_base(base);
                }
                Source::Memory(elements) => {
                    self.elements(&mut instruction, operand, elements);
                    if is_tail {
                        instruction.set_op_mask(TAIL);
                        instruction.set_zeroing_masking(true);
                    }
                }
            }
            operand += 1;
        }
        if let Some(immediate) = step.immediate {
            instruction.set_op_kind(operand, OpKind::Immediate8);
            instruction.set_immediate8(immediate);
        }
        if let Some(lanes) = step.lanes {
            instruction.set_op_mask(self.registers[usize::from(lanes)]);
            // A blend takes its other operand there.
            instruction.set_zeroing_masking(step.code != Code::EVEX_Vblendmps_zmm_k1z_zmm_zmmm512b32);
        }
        self.instructions.push(instruction);
    }

    /// The register with an address.
    fn base(&mut self, address: u16) -> Register {
        ADDRESSES.get(usize::from(address)).copied().unwrap_or_else(|| {
            self.address(address, SPARE);
            SPARE
        })
    }

    /// The elements of a vector at an address.
    fn elements(&mut self, instruction: &mut Instruction, operand: u32, elements: Elements) {
        let Elements { address, bytes, part } = elements;
        let base = self.base(address);
        instruction.set_op_kind(operand, OpKind::Memory);
        instruction.set_memory_base(base);
        instruction.set_memory_index(INDEX);
        instruction.set_memory_index_scale(bytes);
        instruction.set_memory_displacement64((part * bytes) as u64 * T::LANES as u64);
        instruction.set_memory_displ_size(1);
    }

    /// Makes a register an operand, by the name of the part that the instruction works on.
    fn register(&self, instruction: &mut Instruction, operand: u32, register: Register) {
        let named = match T::part(instruction.code(), operand) {
            Some(first) if !register.is_k() => first + (register as u32 - T::VECTORS.0 as u32),
            _ => register,
        };
        instruction.set_op_kind(operand, OpKind::Register);
        instruction.set_op_register(operand, named);
    }
}
