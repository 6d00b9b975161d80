//! The services that speak the OpenAI dialect.

/// A service that speaks the dialect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenAiService {
    /// The prefix of the ids of its models.
    pub name: &'static str,
    /// The address, unless one is configured.
    pub url: &'static str,
    /// The variable that holds its key.
    pub key: &'static str,
}

const fn service(name: &'static str, url: &'static str, key: &'static str) -> OpenAiService {
    OpenAiService { name, url, key }
}

/// OpenAI, and services that are the same at another address.
pub const SERVICES: &[OpenAiService] = &[
    service("openai", "https://api.openai.com/v1", "OPENAI_API_KEY"),
    service("aimlapi", "https://api.aimlapi.com/v1", "AIML_API_KEY"),
    service("ai21", "https://api.ai21.com/studio/v1", "AI21_API_KEY"),
    service("alibaba", "https://dashscope-intl.aliyuncs.com/compatible-mode/v1", "DASHSCOPE_API_KEY"),
    service("dashscope", "https://dashscope-intl.aliyuncs.com/compatible-mode/v1", "DASHSCOPE_API_KEY"),
    service("cerebras", "https://api.cerebras.ai/v1", "CEREBRAS_API_KEY"),
    service("cometapi", "https://api.cometapi.com/v1", "COMETAPI_KEY"),
    service("deepseek", "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
    service("docker", "http://localhost:12434/engines/v1", "DOCKER_MODEL_RUNNER_API_KEY"),
    service("fireworks", "https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY"),
    service("github", "https://models.github.ai/inference", "GITHUB_TOKEN"),
    service("groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    service("hyperbolic", "https://api.hyperbolic.xyz/v1", "HYPERBOLIC_API_KEY"),
    service("litellm", "http://0.0.0.0:4000", "LITELLM_API_KEY"),
    service("llamaapi", "https://api.llama.com/compat/v1", "LLAMA_API_KEY"),
    service("lmstudio", "http://localhost:1234/v1", "LMSTUDIO_API_KEY"),
    service("localai", "http://localhost:8080/v1", "LOCALAI_API_KEY"),
    service("mistral", "https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
    service("moonshot", "https://api.moonshot.ai/v1", "MOONSHOT_API_KEY"),
    service("novita", "https://api.novita.ai/openai/v1", "NOVITA_API_KEY"),
    service("nscale", "https://inference.api.nscale.com/v1", "NSCALE_SERVICE_TOKEN"),
    service("nvidia", "https://integrate.api.nvidia.com/v1", "NVIDIA_API_KEY"),
    service("openrouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    service("perplexity", "https://api.perplexity.ai", "PERPLEXITY_API_KEY"),
    service("together", "https://api.together.xyz/v1", "TOGETHER_API_KEY"),
    service("togetherai", "https://api.together.xyz/v1", "TOGETHER_API_KEY"),
    service("vllm", "http://localhost:8000/v1", "VLLM_API_KEY"),
    service("xai", "https://api.x.ai/v1", "XAI_API_KEY"),
];

impl OpenAiService {
    /// Returns the variable that may hold the host, where the service has one.
    pub fn host_variable(&self) -> Option<&'static str> {
        match self.name {
            "openai" => Some("OPENAI_API_HOST"),
            "mistral" => Some("MISTRAL_API_HOST"),
            _ => None,
        }
    }

    /// Returns the variables that may hold the address, in their order.
    pub fn address_variables(&self) -> [String; 3] {
        let name = self.name.to_uppercase();
        // The last is LiteLLM's.
        ["API_BASE_URL", "BASE_URL", "API_BASE"].map(|kind| format!("{name}_{kind}"))
    }
}
