//! The client and the server of a service that is declared here, since `protoc` is not on every machine. With a `.proto`
//! file it is `tonic_prost_build::compile_protos`.

use tonic_build::manual::{Builder, Method, Service};

fn main() {
    let import = Method::builder()
        .name("import")
        .route_name("Import")
        .input_type("crate::Account")
        .output_type("crate::Imported")
        .codec_path("tonic_prost::ProstCodec")
        .build();
    let accounts = Service::builder()
        .name("Accounts")
        .package("accounts")
        .method(import);
    Builder::new().compile(&[accounts.build()]);
}
