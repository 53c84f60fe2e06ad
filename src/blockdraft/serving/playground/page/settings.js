// The settings dialog: what it says is read when a request is made, and kept nowhere else.

export class Settings {
  constructor() {
    const byId = (id) => document.getElementById(id);
    this.dialog = byId("settings");
    this.temperature = byId("temperature");
    this.maxTokens = byId("max-tokens");
    this.seed = byId("seed");
    this.speculation = byId("speculation");
    this.system = byId("system");
    this.key = byId("key");
    byId("open-settings").addEventListener("click", () => this.open());
  }

  open() {
    this.dialog.showModal();
  }

  get apiKey() {
    return this.key.value.trim();
  }

  // The fields of a request for these messages; throws where a setting makes no sense.
  request(messages, speculation = this.speculation.value) {
    const wrong = [this.temperature, this.maxTokens, this.seed].find((x) => !x.checkValidity());
    if (wrong) {
      const name = wrong.labels[0].firstChild.textContent.trim();
      throw new Error(`${name} in Settings is not usable: ${wrong.validationMessage}`);
    }
    const system = this.system.value.trim();
    const request = {
      messages: system ? [{ role: "system", content: system }, ...messages] : messages,
      max_tokens: Number(this.maxTokens.value),
      blockdraft: { step_details: true, speculation },
    };
    if (this.temperature.value !== "") request.temperature = Number(this.temperature.value);
    if (this.seed.value !== "") request.seed = Number(this.seed.value);
    return request;
  }
}
