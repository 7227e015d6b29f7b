//! The inbound program, ready to load but for the cookie of a namespace: the object is read, its BTF is loaded and its
//! instructions are relocated once, not for each pod.

use crate::error::{Doing, Error, Result};
use crate::service_pins;
use libbpf_rs::libbpf_sys::{
    BPF_F_RDONLY_PROG, BPF_PROG_TYPE_SK_LOOKUP, BPF_PSEUDO_MAP_FD, BPF_PSEUDO_MAP_VALUE, BPF_SK_LOOKUP, bpf_func_info,
    bpf_insn, bpf_map_create_opts, bpf_object__btf_fd, bpf_prog_load, bpf_prog_load_opts, bpf_program__func_info,
    bpf_program__func_info_cnt,
};
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{AsRawLibbpf, MapCore, MapFlags, MapHandle, MapType, Object};
use sidestep_bpf::inbound::InboundSkelBuilder;
use sidestep_bpf::inbound::types::rodata;
use std::io;
use std::mem::{MaybeUninit, offset_of};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;

pub const PROGRAM: &str = "inbound";
/// As in the programs' sources.
const LICENSE: &std::ffi::CStr = c"Dual BSD/GPL";
/// `BPF_LD | BPF_IMM | BPF_DW`: the instruction that names a map; it takes two slots.
const LOAD_ADDRESS: u8 = 0x18;

pub struct Template {
    instructions: Vec<bpf_insn>,
    /// Indices of the instructions that name the settings map.
    settings_at: Vec<usize>,
    settings: Vec<u8>,
    functions: Functions,
    /// Keeps open the descriptors that the instructions contain.
    _maps: Vec<OwnedFd>,
}

/// Which instructions are functions, and their types. With it the verifier checks global functions by themselves.
struct Functions {
    btf: OwnedFd,
    starts: Vec<bpf_func_info>,
}

#[derive(Debug, thiserror::Error)]
#[error("there are none")]
struct NoSettings;

impl Template {
    pub fn new(pins: &Path) -> Result<Template> {
        let mut object = MaybeUninit::uninit();
        let mut open = InboundSkelBuilder::default().open(&mut object).doing("read the inbound program")?;
        service_pins::use_pinned(open.open_object_mut(), pins)?;
        let mut skeleton = open.load().doing("load the inbound program")?;
        let data = &skeleton.maps.rodata;
        let settings_number = data.as_fd().as_raw_fd();
        let settings = data.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).doing("read the inbound program's settings")?;
        let settings = settings.ok_or_else(|| Error::new("read the inbound program's settings", NoSettings))?;
        let functions = Functions::of(skeleton.object()).doing("read the types of the inbound program")?;
        let program = skeleton.object_mut().progs_mut().find(|program| program.name() == PROGRAM);
        let mut instructions = program.expect("the object has the program").insns().to_vec();
        let (mut settings_at, mut maps) = (Vec::new(), Vec::new());
        let mut at = 0;
        while at < instructions.len() {
            if let Some(number) = map_of(&instructions[at]) {
                if number == settings_number {
                    settings_at.push(at);
                } else {
                    // SAFETY: the loader has written the numbers of maps that the skeleton holds open.
                    let own = unsafe { BorrowedFd::borrow_raw(number) }.try_clone_to_owned();
                    let own = own.doing("hold a map of the inbound program")?;
                    instructions[at].imm = own.as_raw_fd();
                    maps.push(own);
                }
            }
            at += if instructions[at].code == LOAD_ADDRESS { 2 } else { 1 };
        }
        Ok(Template { instructions, settings_at, settings, functions, _maps: maps })
    }

    /// Loads the program for one namespace.
    pub fn load(&self, netns: u64) -> Result<OwnedFd> {
        let settings = self.settings_of(netns)?;
        let mut instructions = self.instructions.clone();
        for at in &self.settings_at {
            instructions[*at].imm = settings.as_fd().as_raw_fd();
        }
        let mut options: bpf_prog_load_opts = zeroed();
        options.sz = size_of::<bpf_prog_load_opts>() as _;
        options.expected_attach_type = BPF_SK_LOOKUP;
        options.prog_btf_fd = self.functions.btf.as_raw_fd() as u32;
        options.func_info = self.functions.starts.as_ptr().cast();
        options.func_info_cnt = self.functions.starts.len() as u32;
        options.func_info_rec_size = size_of::<bpf_func_info>() as u32;
        // SAFETY: instructions and functions are as many as is said and live until the call returns, as do the two names.
        let number = unsafe {
            bpf_prog_load(
                BPF_PROG_TYPE_SK_LOOKUP,
                c"inbound".as_ptr(),
                LICENSE.as_ptr(),
                instructions.as_ptr(),
                instructions.len() as _,
                &mut options,
            )
        };
        owned(number).doing("load the inbound program")
    }

    /// The settings of one namespace, frozen: the verifier treats them as constants.
    fn settings_of(&self, netns: u64) -> Result<MapHandle> {
        let mut options: bpf_map_create_opts = zeroed();
        options.sz = size_of::<bpf_map_create_opts>() as _;
        options.map_flags = BPF_F_RDONLY_PROG;
        let size = self.settings.len() as u32;
        let doing = "make the inbound program's settings";
        let map = MapHandle::create(MapType::Array, Some("inbound.rodata"), 4, size, 1, &options).doing(doing)?;
        let mut settings = self.settings.clone();
        let at = offset_of!(rodata, netns);
        settings[at..at + 8].copy_from_slice(&netns.to_ne_bytes());
        map.update(&0u32.to_ne_bytes(), &settings, MapFlags::ANY).doing(doing)?;
        map.freeze().doing(doing)?;
        Ok(map)
    }
}

impl Functions {
    fn of(object: &Object) -> io::Result<Functions> {
        // SAFETY: the object lives; the descriptor is its own, and is open as long.
        let btf =
            unsafe { BorrowedFd::borrow_raw(descriptor(bpf_object__btf_fd(object.as_libbpf_object().as_ptr()))?) };
        let program = object.progs().find(|program| program.name() == PROGRAM).expect("the object has the program");
        let program = program.as_libbpf_object().as_ptr();
        // SAFETY: the program lives.
        let (first, count) = unsafe { (bpf_program__func_info(program), bpf_program__func_info_cnt(program)) };
        let starts = match count {
            0 => Vec::new(),
            // SAFETY: libbpf has so many of them in one array, which lives as long as the program.
            _ => unsafe { std::slice::from_raw_parts(first, count as usize) }.to_vec(),
        };
        Ok(Functions { btf: btf.try_clone_to_owned()?, starts })
    }
}

fn map_of(instruction: &bpf_insn) -> Option<i32> {
    let names_map = [BPF_PSEUDO_MAP_FD, BPF_PSEUDO_MAP_VALUE].contains(&u32::from(instruction.src_reg()));
    (instruction.code == LOAD_ADDRESS && names_map).then_some(instruction.imm)
}

/// Options of libbpf with nothing chosen, which is all zeros.
fn zeroed<T: Options>() -> T {
    // SAFETY: `Options` are numbers and pointers, for which zero is a value.
    unsafe { std::mem::zeroed() }
}

/// # Safety
/// All zeros are a value.
unsafe trait Options {}
// SAFETY: numbers and pointers.
unsafe impl Options for bpf_prog_load_opts {}
// SAFETY: numbers and pointers.
unsafe impl Options for bpf_map_create_opts {}

/// A new descriptor, or the error that libbpf has returned in its place.
pub fn owned(number: i32) -> io::Result<OwnedFd> {
    let number = descriptor(number)?;
    // SAFETY: the kernel has just given it to us, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// A descriptor's number, or the error that libbpf has returned in its place.
fn descriptor(number: i32) -> io::Result<i32> {
    if number < 0 { Err(io::Error::from_raw_os_error(-number)) } else { Ok(number) }
}
