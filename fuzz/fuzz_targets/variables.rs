#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| sandcove_server::fuzzing::variables(input));
