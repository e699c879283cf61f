// Vercel's AI SDK: generateObject over responses (its own way) and over chat completions.
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateObject, generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const baseURL = process.env.CLIENT_URL;
const apiKey = process.env.CLIENT_TOKEN;
const compatible = createOpenAICompatible({ name: "ours", baseURL, apiKey, supportsStructuredOutputs: true });
const models = { responses: createOpenAI({ baseURL, apiKey })("nacre"), chat: compatible("nacre") };
const schema = z.object({ city: z.string(), people: z.number().int() });

const found = {};
for (const [name, model] of Object.entries(models)) {
  const ran = [];
  const weather = tool({
    description: "The weather of a city.",
    inputSchema: z.object({ city: z.string() }),
    execute: async ({ city }) => {
      ran.push(city);
      return "rain";
    },
  });
  const Result = tool({ description: "A city.", inputSchema: schema });
  const options = { model, maxRetries: 0 };
  const streamed = streamText({ ...options, prompt: "hello" });
  let text = "";
  for await (const piece of streamed.textStream) text += piece;
  found[name] = {
    whole: (await generateText({ ...options, prompt: "hello" })).text,
    streamed: text,
    object: (await generateObject({ ...options, schema, prompt: "Where?" })).object,
    told: (
      await generateText({ ...options, tools: { weather }, stopWhen: stepCountIs(3), prompt: "The weather?" })
    ).text,
    ran,
    byCall: (
      await generateText({ ...options, tools: { Result }, toolChoice: { type: "tool", toolName: "Result" }, prompt: "Where?" })
    ).toolCalls[0].input,
  };
}
process.stdout.write(JSON.stringify(found));
