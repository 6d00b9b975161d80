import { ApiProvider, ProviderOptions, ProviderResponse, CallApiContextParams } from 'promptfoo';
import * as path from 'path';
export default class CustomApiProvider implements ApiProvider {
  protected providerId: string;
  public config: any;
  constructor(private options: ProviderOptions, readonly extra?: number) { this.providerId = options.id || 'custom'; this.config = options.config; }
  id(): string { return this.providerId; }
  async callApi(prompt: string, context?: CallApiContextParams): Promise<ProviderResponse> {
    const out = <string>prompt; return { output: `${path.basename(__filename)} ${out!} ${context?.vars?.t ?? ''}`, tokenUsage: { total: 1 } };
  }
}
